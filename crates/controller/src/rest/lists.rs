//! Paged lists. A page begins after the item whose key is the cursor, so that items added or
//! removed meanwhile neither repeat nor hide others.
//!
//! Each list has its own query type, which rejects unknown parameters: an ignored filter would make
//! all items look like the matching ones.

use axum::Json;
use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::Refusal;
use crate::words::quoted;

/// Parameters of a page.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageQuery {
    pub(super) limit: Option<usize>,
    pub(super) cursor: Option<String>,
    /// Selects items with this text in a value, case-insensitively.
    pub(super) q: Option<String>,
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    /// Cursor of the next page; `None` for the last one.
    pub(super) next: Option<String>,
    /// Number of items on all pages.
    pub(super) total: usize,
}

/// A query string, whose errors are reported like all others.
pub(super) struct Asked<T>(pub(super) T);

impl PageQuery {
    /// The requested page of these items, in the order of their keys.
    pub(super) fn page<T: Serialize>(
        &self,
        items: impl IntoIterator<Item = (String, T)>,
    ) -> Result<Json<Page<T>>, Refusal> {
        let limit = page_limit(self.limit)?;
        let mut items: Vec<_> = items.into_iter().filter(|(_, item)| self.wants(item)).collect();
        items.sort_by(|(a, _), (b, _)| a.cmp(b));
        let total = items.len();
        let is_before = |(key, _): &(String, T)| Some(key) <= self.cursor.as_ref();
        let mut rest = items.into_iter().skip_while(is_before).peekable();
        let mut page = Page { items: Vec::new(), next: None, total };
        while let Some((key, item)) = rest.next() {
            page.items.push(item);
            if page.items.len() == limit {
                page.next = rest.peek().map(|_| key);
                break;
            }
        }
        Ok(Json(page))
    }

    fn wants(&self, item: &impl Serialize) -> bool {
        let Some(wanted) = self.q.as_deref().filter(|wanted| !wanted.is_empty()) else {
            return true;
        };
        let value = serde_json::to_value(item).unwrap_or_default();
        has(&value, &wanted.to_lowercase())
    }
}

/// Number of items on a page.
pub(super) fn page_limit(asked: Option<usize>) -> Result<usize, Refusal> {
    let limit = asked.unwrap_or(DEFAULT_LIMIT);
    if (1..=MAX_LIMIT).contains(&limit) {
        return Ok(limit);
    }
    let message = format!("limit {limit}: expected 1 to {MAX_LIMIT}");
    Err(Refusal::malformed(message).about("limit"))
}

/// Whether a value contains this text, which must be lower case.
pub(super) fn has(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text.to_lowercase().contains(wanted),
        Value::Number(number) => number.to_string().contains(wanted),
        Value::Array(values) => values.iter().any(|value| has(value, wanted)),
        Value::Object(members) => members.values().any(|value| has(value, wanted)),
        Value::Bool(_) | Value::Null => false,
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let query = Query::from_request_parts(parts, state).await;
        let Query(query) = query.map_err(|error| refuse_query(&error.body_text()))?;
        Ok(Self(query))
    }
}

/// Rewords a parser's error for the query's author.
fn refuse_query(error: &str) -> Refusal {
    let text = error.strip_prefix("Failed to deserialize query string: ").unwrap_or(error);
    let twice = text.strip_prefix("duplicate field `").and_then(|field| field.strip_suffix('`'));
    if let Some(field) = twice {
        return Refusal::malformed(format!("{field}: given twice; give it once")).about(field);
    }
    let Some((field, what)) = text.split_once(": ") else { return Refusal::malformed(text) };
    let what = match what {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "expected a whole number, 0 or more".to_owned()
        }
        "number too large to fit in target type" => "the number is too large".to_owned(),
        "provided string was not `true` or `false`" => "expected true or false".to_owned(),
        other => unknown(other).unwrap_or_else(|| other.to_owned()),
    };
    Refusal::malformed(format!("{field}: {what}")).about(field)
}

/// An unknown parameter or value, with the known ones.
fn unknown(what: &str) -> Option<String> {
    let (asked, known) = what.strip_prefix("unknown ")?.split_once(", ")?;
    let (kind, name) = asked.split_once(" `")?;
    let name = name.strip_suffix('`')?;
    let known: Vec<_> = quoted(known).collect();
    let known = known.join(", ");
    Some(match (kind, known.is_empty()) {
        ("field", true) => "this path has no query parameters".to_owned(),
        ("field", false) => format!("unknown query parameter; expected one of: {known}"),
        _ => format!("unknown value {name:?}; expected one of: {known}"),
    })
}

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn items(names: &[&str]) -> Vec<(String, String)> {
        names.iter().map(|name| ((*name).to_owned(), (*name).to_owned())).collect()
    }

    fn query(limit: usize, cursor: Option<&str>) -> PageQuery {
        PageQuery { limit: Some(limit), cursor: cursor.map(str::to_owned), ..PageQuery::default() }
    }

    #[test]
    fn pages_hold_everything_once_while_items_come_and_go() {
        let first = query(2, None).page(items(&["d", "a", "c", "b", "e"])).unwrap().0;
        assert_eq!((first.items, first.total), (vec!["a".to_owned(), "b".to_owned()], 5));
        assert_eq!(first.next.as_deref(), Some("b"));
        let second = query(2, Some("b")).page(items(&["a", "aa", "c", "d", "e"])).unwrap().0;
        assert_eq!(second.items, ["c", "d"]);
        let last = query(2, second.next.as_deref()).page(items(&["c", "d", "e"])).unwrap().0;
        assert_eq!((last.items, last.next), (vec!["e".to_owned()], None));
    }

    #[test]
    fn a_page_that_ends_the_list_has_no_next() {
        let page = query(2, None).page(items(&["a", "b"])).unwrap().0;
        assert_eq!(page.next, None);
        assert_eq!(query(2, Some("z")).page(items(&["a"])).unwrap().0.items.len(), 0);
    }

    #[test]
    fn limits_that_make_no_sense_are_refused() {
        for limit in [0, MAX_LIMIT + 1] {
            let refusal = page_limit(Some(limit)).unwrap_err();
            assert_eq!(refusal.field.as_deref(), Some("limit"));
        }
    }

    #[test]
    fn what_is_wrong_with_a_query_names_the_field_and_what_is_expected() {
        let told = |text: &str| {
            let refusal = refuse_query(&format!("Failed to deserialize query string: {text}"));
            (refusal.message, refusal.field)
        };
        let table = Some("table".to_owned());
        let number = "table: expected a whole number, 0 or more".to_owned();
        assert_eq!(told("table: invalid digit found in string"), (number, table.clone()));
        let large = "table: the number is too large".to_owned();
        assert_eq!(told("table: number too large to fit in target type"), (large, table.clone()));
        let flag = ("force: expected true or false".to_owned(), Some("force".to_owned()));
        assert_eq!(told("force: provided string was not `true` or `false`"), flag);
        for (error, expected) in [
            (
                "table: unknown field `table`, expected `q`",
                "unknown query parameter; expected one of: q",
            ),
            (
                "table: unknown field `table`, expected one of `limit`, `cursor`, `q`",
                "unknown query parameter; expected one of: limit, cursor, q",
            ),
            (
                "table: unknown field `table`, there are no fields",
                "this path has no query parameters",
            ),
            (
                "table: unknown variant `a, `b`, expected `c` or `d`",
                "unknown variant `a, `b`, expected `c` or `d`",
            ),
            (
                "table: unknown variant `x`, expected `c` or `d`",
                "unknown value \"x\"; expected one of: c, d",
            ),
        ] {
            assert_eq!(told(error), (format!("table: {expected}"), table.clone()));
        }
        let twice = ("table: given twice; give it once".to_owned(), Some("table".to_owned()));
        assert_eq!(told("duplicate field `table`"), twice);
        assert_eq!(told("no more"), ("no more".to_owned(), None));
    }

    #[test]
    fn items_are_found_by_their_values() {
        let wanted = PageQuery { q: Some("WEB".to_owned()), ..PageQuery::default() };
        let page = wanted.page(items(&["my-web", "mail"])).unwrap().0;
        assert_eq!((page.items, page.total), (vec!["my-web".to_owned()], 1));
        let key = PageQuery { q: Some("name".to_owned()), ..PageQuery::default() };
        let item = serde_json::json!({"name": "web", "port": 80});
        assert!(!key.wants(&item));
        assert!(PageQuery { q: Some("80".to_owned()), ..PageQuery::default() }.wants(&item));
    }
}
