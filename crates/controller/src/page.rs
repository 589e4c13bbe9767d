//! The page: static files that are part of the binary, compressed when it was built.
//!
//! They are the same for everybody and hold no secret, so they need no token; what they ask for
//! does. A browser keeps them, and asks each time whether they are still the same (`ETag`,
//! RFC 9110 §13): an update of the controller shows at once.
//!
//! The policy of their contents (<https://www.w3.org/TR/CSP3/>) allows what comes from here alone,
//! and nothing inline: text of hosts and switches cannot become script.

use std::convert::Infallible;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get};

/// One file of the page.
#[derive(Debug)]
struct File {
    /// Its path on this server.
    url: &'static str,
    /// Its media type.
    kind: &'static str,
    /// Of its contents.
    hash: &'static str,
    plain: &'static [u8],
    gzip: Option<&'static [u8]>,
    brotli: Option<&'static [u8]>,
}

impl File {
    /// The contents in an encoding that the client takes, with the encoding's name.
    fn encoded(&self, accepted: &str) -> (&'static [u8], Option<&'static str>) {
        let choices = [("br", self.brotli), ("gzip", self.gzip)];
        let choice = choices.into_iter().find_map(|(name, bytes)| {
            let bytes = bytes.filter(|_| accepts(accepted, name))?;
            Some((bytes, Some(name)))
        });
        choice.unwrap_or((self.plain, None))
    }

    fn answer(&self, request: &HeaderMap) -> Response<axum::body::Body> {
        let (bytes, encoding) = self.encoded(&words(request, &ACCEPT_ENCODING));
        let tag = format!("\"{}{}\"", self.hash, encoding.unwrap_or_default());
        let is_known = has_tag(&words(request, &IF_NONE_MATCH), &tag);
        let mut response = match is_known {
            true => StatusCode::NOT_MODIFIED.into_response(),
            false => Bytes::from_static(bytes).into_response(),
        };
        let headers = response.headers_mut();
        let mut put = |name: HeaderName, value: &'static str| {
            headers.insert(name, HeaderValue::from_static(value));
        };
        put(CONTENT_TYPE, self.kind);
        put(CACHE_CONTROL, "no-cache");
        put(VARY, "accept-encoding");
        SECURITY.into_iter().for_each(|(name, value)| put(name, value));
        if let Some(encoding) = encoding {
            put(CONTENT_ENCODING, encoding);
        }
        // Hexadecimal digits and the name of an encoding.
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            headers.insert(ETAG, tag);
        }
        response
    }
}

/// The paths of the page.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, file| router.route(file.url, handler(file)))
}

fn handler<S: Clone + Send + Sync + 'static>(file: &'static File) -> MethodRouter<S, Infallible> {
    get(async move |headers: HeaderMap| file.answer(&headers))
}

/// All values of a header, as one list.
fn words(headers: &HeaderMap, name: &HeaderName) -> String {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.collect::<Vec<_>>().join(",")
}

/// Whether `Accept-Encoding` has this coding and does not forbid it by `q=0` (RFC 9110 §12.5.3).
fn accepts(accepted: &str, name: &str) -> bool {
    accepted.split(',').any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let is_it = parts.next().is_some_and(|coding| coding.eq_ignore_ascii_case(name));
        let weight = parts.find_map(|part| part.strip_prefix("q="));
        is_it && weight.is_none_or(|weight| weight.parse().is_ok_and(|weight: f32| weight > 0.0))
    })
}

/// Whether `If-None-Match` names this tag; weak ones count as well (RFC 9110 §13.1.2).
fn has_tag(known: &str, tag: &str) -> bool {
    let mut items = known.split(',').map(|item| item.trim().trim_start_matches("W/"));
    items.any(|item| item == "*" || item == tag)
}

/// What the page consists of, by `build.rs`.
const FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/page_files.rs"));

/// What keeps a page from doing more than it should.
const SECURITY: [(HeaderName, &str); 4] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'",
    ),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
];

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: File = File {
        url: "/page.js",
        kind: "text/javascript; charset=utf-8",
        hash: "0123",
        plain: b"plain",
        gzip: Some(b"gzip"),
        brotli: Some(b"br"),
    };

    fn ask(file: &File, pairs: &[(HeaderName, &'static str)]) -> Response<axum::body::Body> {
        let pairs = pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
        file.answer(&pairs.collect())
    }

    fn header(response: &Response<axum::body::Body>, name: HeaderName) -> Option<&str> {
        response.headers().get(name).map(|value| value.to_str().unwrap())
    }

    #[test]
    fn the_best_encoding_that_the_client_takes() {
        let cases = [
            ("", None),
            ("gzip, deflate, br, zstd", Some("br")),
            ("gzip", Some("gzip")),
            ("br;q=0, gzip;q=0.5", Some("gzip")),
            ("BR", Some("br")),
            ("brotli", None),
            ("br;q=x", None),
        ];
        for (accepted, encoding) in cases {
            let response = ask(&FILE, &[(ACCEPT_ENCODING, accepted)]);
            assert_eq!(header(&response, CONTENT_ENCODING), encoding, "{accepted}");
        }
        let bare = File { brotli: None, gzip: None, ..FILE };
        assert_eq!(header(&ask(&bare, &[(ACCEPT_ENCODING, "br")]), CONTENT_ENCODING), None);
    }

    #[test]
    fn what_the_browser_has_is_not_sent_again() {
        let first = ask(&FILE, &[(ACCEPT_ENCODING, "br")]);
        assert_eq!(first.status(), StatusCode::OK);
        assert_eq!(header(&first, ETAG), Some("\"0123br\""));
        for known in ["\"0123br\"", "\"other\", W/\"0123br\"", "*"] {
            let again = ask(&FILE, &[(ACCEPT_ENCODING, "br"), (IF_NONE_MATCH, known)]);
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{known}");
        }
        let other = ask(&FILE, &[(ACCEPT_ENCODING, "gzip"), (IF_NONE_MATCH, "\"0123br\"")]);
        assert_eq!(other.status(), StatusCode::OK, "another encoding is another tag");
    }

    #[test]
    fn nothing_inline_and_nothing_from_elsewhere_is_allowed() {
        let response = ask(&FILE, &[]);
        let policy = header(&response, CONTENT_SECURITY_POLICY).unwrap();
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
    }

    #[test]
    fn there_is_a_page_at_the_root_that_keeps_to_the_policy() {
        let root = FILES.iter().find(|file| file.url == "/").unwrap();
        let text = std::str::from_utf8(root.plain).unwrap();
        assert!(text.starts_with("<!doctype html>"));
        for inline in ["<script>", "<style", " style=", " onclick=", "http:", "https:"] {
            assert!(!text.contains(inline), "{inline}");
        }
    }
}
