//! Target `filter`: a filter matches the same frames as the rules that switches get; errors have a
//! position.

use tapswitch_control::{Filter, FilterError, PolicyError, TapPolicy};

/// Parses a filter, up to the first zero byte, and matches a frame, the rest of `data`.
pub fn filter(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (text, frame) = data.split_at(end);
    let (Ok(text), frame) = (std::str::from_utf8(text), frame.get(1..).unwrap_or_default()) else {
        return;
    };
    match text.parse::<Filter>() {
        Ok(filter) => check(&filter, frame),
        Err(error) => check_place(&error, text),
    }
}

fn check(filter: &Filter, frame: &[u8]) {
    let text = filter.to_string();
    let again: Result<Filter, _> = text.parse();
    assert_eq!(again.as_ref(), Ok(filter));
    let Ok(monitor) = "1".parse() else { return };
    let policy = TapPolicy { filter: Some(text.clone()), ..TapPolicy::new("p", monitor) };
    match (filter.region_count(), policy.check()) {
        (Ok(count), Ok(())) => {
            assert!(count > 0, "{text}");
            assert_eq!(filter.matches(frame), policy.matches(frame), "{text}: {frame:02x?}");
        }
        (Err(error), refused) => {
            check_place(&error, &text);
            assert!(matches!(refused, Err(PolicyError::Filter(_))), "{text}: {refused:?}");
            let is_empty = error.to_string().contains("no frame");
            assert!(!is_empty || !filter.matches(frame), "{text}: {frame:02x?}");
        }
        // Exceptions of several parts may make more regions than the parts have.
        (Ok(_), Err(error)) => {
            assert!(matches!(error, PolicyError::TooManyRegions { .. }), "{text}: {error}");
        }
    }
}

fn check_place(error: &FilterError, text: &str) {
    assert!(text.is_char_boundary(error.at()), "{text:?}: {error}");
    assert!(!error.what().is_empty() && !error.remedy().is_empty(), "{error:?}");
}
