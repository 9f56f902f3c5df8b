//! Reads all pages of a list.

use bindery_proto::address::Address;

use crate::error::Error;

/// Limit on the pages of one list: half a million objects at the default page size.
const PAGES_MAX: usize = 10_000;

/// Reads pages until one has no token for a next page. An empty page with a token is not the last one.
pub(crate) async fn all<T, P, R>(address: &Address, first: String, mut page: P) -> Result<Vec<T>, Error>
where
    P: FnMut(String) -> R,
    R: Future<Output = Result<(Vec<T>, String), Error>>,
{
    let mut items = Vec::new();
    let mut token = first;
    for _ in 0..PAGES_MAX {
        let (more, next) = page(token.clone()).await?;
        items.extend(more);
        if next.is_empty() {
            return Ok(items);
        }
        if next == token {
            return Err(Error::protocol(address, "a page names itself as the next one"));
        }
        token = next;
    }
    Err(Error::protocol(
        address,
        format!("a list has more than {PAGES_MAX} pages"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves pages by number: the token is the index of the page.
    async fn read(pages: &[(&[u32], &str)]) -> Result<Vec<u32>, String> {
        let address: Address = "https://bind.example.com".parse().unwrap();
        let serve = |token: String| {
            let (items, next) = pages[token.parse::<usize>().unwrap_or(0)];
            std::future::ready(Ok((items.to_vec(), next.to_owned())))
        };
        all(&address, String::new(), serve)
            .await
            .map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn goes_on_over_empty_pages() {
        assert_eq!(read(&[(&[1, 2], "")]).await, Ok(vec![1, 2]));
        assert_eq!(read(&[(&[], "1"), (&[], "2"), (&[7], "")]).await, Ok(vec![7]));
        assert_eq!(read(&[(&[], "")]).await, Ok(vec![]));
    }

    #[tokio::test]
    async fn a_list_that_never_ends_is_an_error() {
        let error = read(&[(&[1], "1"), (&[2], "1")]).await.unwrap_err();
        assert!(error.contains("names itself"), "{error}");
        let error = read(&[(&[], "1"), (&[], "2"), (&[], "1")]).await.unwrap_err();
        assert!(error.contains("more than 10000 pages"), "{error}");
    }
}
