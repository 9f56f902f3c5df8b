//! Which images server and konnector run.

/// What the flags say about images.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AskedImage<'a> {
    /// The image itself.
    pub(crate) image: Option<&'a str>,
    pub(crate) registry: Option<&'a str>,
    pub(crate) version: Option<&'a str>,
}

impl AskedImage<'_> {
    /// The image to run: what the flags say, or else what is installed, or else that of this release.
    pub(crate) fn choose(self, release: &str, installed: Option<&str>) -> String {
        if let Some(image) = self.image {
            return image.to_owned();
        }
        if self.registry.is_none() && self.version.is_none() {
            return installed.unwrap_or(release).to_owned();
        }
        let (name, tag) = release.rsplit_once(':').unwrap_or((release, "latest"));
        let tag = self.version.unwrap_or(tag);
        match self.registry {
            Some(registry) => format!("{}/{name}:{tag}", registry.trim_end_matches('/')),
            None => format!("{name}:{tag}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_what_is_installed_and_that_over_the_release() {
        let check = |asked: AskedImage<'_>, installed: Option<&str>, expect: &str| {
            assert_eq!(asked.choose("bindery-server:0.1.0", installed), expect, "{asked:?}");
        };
        let none = AskedImage::default();
        check(none, None, "bindery-server:0.1.0");
        check(none, Some("r/s:1"), "r/s:1");
        let registry = AskedImage {
            registry: Some("r.example.com/b/"),
            ..none
        };
        check(registry, Some("r/s:1"), "r.example.com/b/bindery-server:0.1.0");
        let version = AskedImage {
            version: Some("0.2.0"),
            ..none
        };
        check(version, None, "bindery-server:0.2.0");
        let both = AskedImage {
            version: Some("0.2.0"),
            ..registry
        };
        check(both, None, "r.example.com/b/bindery-server:0.2.0");
        let image = AskedImage {
            image: Some("mine@sha256:0"),
            ..both
        };
        check(image, Some("r/s:1"), "mine@sha256:0");
    }
}
