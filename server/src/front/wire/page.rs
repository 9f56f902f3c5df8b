//! Pages of a list. A token holds the key after which to go on and a hash of the call's other arguments, so it works on every
//! replica and never expires. It grants nothing: each call shows only what its caller may see.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bindery_proto::v1alpha2::ErrorReason;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use prost::Message;

use crate::front::{Failure, Outcome, wire::validate::PageRequest};

/// Number of entries of a page if the call sets none.
const SIZE_DEFAULT: usize = 50;
/// Largest number of entries of a page.
pub(crate) const SIZE_MAX: usize = 500;
/// A page ends at this number of bytes even if it has room for more entries.
const BYTES_MAX: usize = 1024 * 1024;
/// Number of candidates that are examined for one page, whether it shows them or not.
const EXAMINED_MAX: usize = 500;
/// Number of candidates that are examined at the same time.
const CONCURRENCY: usize = 16;
const TOKEN_VERSION: u8 = 1;
const TOKEN_LENGTH_MAX: usize = 2_048;

/// A page that is requested.
#[derive(Debug)]
pub(crate) struct Page {
    size: usize,
    /// The key after which the page begins; none for the first page.
    pub(in crate::front) after: Option<String>,
    arguments: [u8; 8],
}

/// The entries of a page.
#[derive(Debug)]
pub(crate) struct Filled<M> {
    /// The entries.
    pub entries: Vec<M>,
    /// Token of the next page; empty on the last page.
    pub next_page_token: String,
}

impl Page {
    /// Reads the page that a call requests; `arguments` are the name of the list and all other arguments of the call.
    pub(crate) fn read(request: &PageRequest, arguments: &[&str]) -> Outcome<Self> {
        let size = match request.size {
            0 => SIZE_DEFAULT,
            size => size.min(SIZE_MAX),
        };
        let arguments = digest(arguments);
        let after = match request.token.as_str() {
            "" => None,
            token => Some(decode(token, arguments).ok_or_else(|| {
                Failure::new(
                    ErrorReason::PageTokenInvalid,
                    "the page token is not one of this list, or the other arguments changed; begin again without it",
                )
            })?),
        };
        Ok(Self { size, after, arguments })
    }

    /// Fills the page from candidates, which are in order of their keys. `look` gives the entry of a candidate, or none to skip it.
    pub(crate) async fn fill<T, M: Message, F>(
        self,
        candidates: Vec<(String, T)>,
        look: impl Fn(T) -> F,
    ) -> Outcome<Filled<M>>
    where
        F: Future<Output = Outcome<Option<M>>>,
    {
        let start = self
            .after
            .as_ref()
            .map_or(0, |after| candidates.partition_point(|(key, _)| key <= after));
        let total = candidates.len();
        let examined = candidates.into_iter().enumerate().skip(start).take(EXAMINED_MAX);
        let mut looked = stream::iter(examined)
            .map(|(index, (key, candidate))| {
                let shown = look(candidate);
                async move { shown.await.map(|shown| (index, key, shown)) }
            })
            .buffered(CONCURRENCY);
        let mut entries: Vec<M> = Vec::new();
        let mut bytes = 0;
        let mut last = None;
        while let Some((index, key, shown)) = looked.try_next().await? {
            if let Some(entry) = shown {
                bytes += entry.encoded_len();
                // A page has at least one entry, however large, or the list would never end.
                if !entries.is_empty() && bytes > BYTES_MAX {
                    break;
                }
                entries.push(entry);
            }
            last = Some((index, key));
            if entries.len() == self.size {
                break;
            }
        }
        let next_page_token = match last {
            Some((index, key)) if index + 1 < total => encode(&key, self.arguments),
            _ => String::new(),
        };
        Ok(Filled {
            entries,
            next_page_token,
        })
    }
}

/// Each argument with its length, so that no two lists of arguments read the same.
pub(in crate::front) fn digest(arguments: &[&str]) -> [u8; 8] {
    let digest = bindery_api::hash::of_parts(arguments);
    digest.first_chunk().copied().unwrap_or_default()
}

/// The token of the page after `key`.
pub(in crate::front) fn encode(key: &str, arguments: [u8; 8]) -> String {
    let bytes = [&[TOKEN_VERSION], arguments.as_slice(), key.as_bytes()].concat();
    URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(token: &str, arguments: [u8; 8]) -> Option<String> {
    if token.len() > TOKEN_LENGTH_MAX {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
    let key = bytes.strip_prefix(&[TOKEN_VERSION])?.strip_prefix(&arguments)?;
    String::from_utf8(key.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use bindery_proto::v1alpha2::NameRef;
    use proptest::prelude::*;

    use super::*;

    fn candidates(count: usize) -> Vec<(String, usize)> {
        (0..count).map(|number| (format!("key-{number:05}"), number)).collect()
    }

    fn read(size: usize, token: &str, arguments: &[&str]) -> Outcome<Page> {
        let token = token.to_owned();
        Page::read(&PageRequest { size, token }, arguments)
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime")
            .block_on(future)
    }

    /// Walks a whole list and returns what it showed, with the number of pages.
    fn walk(count: usize, size: usize, show: impl Fn(usize) -> Option<String>) -> (Vec<String>, usize) {
        let (mut seen, mut pages, mut token) = (Vec::new(), 0, String::new());
        loop {
            let page = read(size, &token, &["x"]).expect("a page");
            let filled = run(page.fill(candidates(count), |number| {
                let shown = show(number).map(|name| NameRef { name });
                async { Ok(shown) }
            }))
            .expect("entries");
            seen.extend(filled.entries.into_iter().map(|entry| entry.name));
            pages += 1;
            if filled.next_page_token.is_empty() {
                return (seen, pages);
            }
            token = filled.next_page_token;
        }
    }

    #[test]
    fn every_entry_is_shown_once_whatever_the_size_of_a_page() {
        let all = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>();
        for (count, size, pages) in [
            (0, 0, 1),
            (50, 0, 1),
            (51, 0, 2),
            (10, 3, 4),
            (9, 3, 3),
            (1_200, 9_999, 3),
        ] {
            assert_eq!(
                walk(count, size, |number| Some(number.to_string())),
                (all(count), pages),
                "{count} by {size}"
            );
        }
    }

    #[test]
    fn a_page_ends_for_bytes_and_for_candidates_too() {
        let large = "x".repeat(BYTES_MAX / 2);
        let (seen, pages) = walk(4, 0, |_| Some(large.clone()));
        assert_eq!((seen.len(), pages), (4, 4));
        let huge = "x".repeat(BYTES_MAX * 2);
        assert_eq!(walk(2, 0, |_| Some(huge.clone())).1, 2);
        let (seen, pages) = walk(1_001, 10, |number| (number == 1_000).then(|| "last".to_owned()));
        assert_eq!((seen.as_slice(), pages), (["last".to_owned()].as_slice(), 3));
    }

    #[test]
    fn a_token_is_for_its_own_arguments_alone() {
        let token = encode("key", digest(&["a", "bc"]));
        assert_eq!(
            read(0, &token, &["a", "bc"]).expect("a page").after.as_deref(),
            Some("key")
        );
        for (token, arguments) in [(token.as_str(), ["ab", "c"]), ("!", ["a", "bc"]), ("AA", ["a", "bc"])] {
            let failure = read(0, token, &arguments).expect_err("a refusal");
            assert_eq!(failure.reason(), ErrorReason::PageTokenInvalid);
        }
    }

    proptest! {
        /// A text is a token exactly if it is what the server would write for the key in it.
        #[test]
        fn only_tokens_that_the_server_writes_are_read(
            token in prop_oneof!["\\PC{0,64}", "[A-Za-z0-9_-]{11,40}"],
            key in "\\PC{0,16}",
            flipped in any::<prop::sample::Index>(),
        ) {
            let mut changed = encode(&key, digest(&[])).into_bytes();
            let at = flipped.index(changed.len());
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            for token in [token, String::from_utf8(changed).expect("ASCII")] {
                match read(0, &token, &[]) {
                    Ok(Page { after: Some(key), .. }) => prop_assert_eq!(encode(&key, digest(&[])), token),
                    Ok(page) => prop_assert!(page.after.is_none() && token.is_empty()),
                    Err(failure) => prop_assert_eq!(failure.reason(), ErrorReason::PageTokenInvalid),
                }
            }
        }

        #[test]
        fn keys_come_back(key in "\\PC{0,64}") {
            prop_assert_eq!(decode(&encode(&key, digest(&[])), digest(&[])), Some(key));
        }
    }
}
