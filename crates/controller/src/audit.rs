//! The audit log: who had whose traffic copied, when, and why.
//!
//! A record is a line of JSON whose last member `hash` is the hexadecimal SHA-256 of the same line
//! without that member. The member before it, `previous`, is the hash of the previous record. So
//! changing, removing or inserting a record requires rewriting all later ones, which anyone with an
//! earlier export, or a single hash, can detect. It proves no more than that: the owner of the
//! machine can rewrite a whole log, or truncate it; keep exports elsewhere.
//!
//! A line can be checked without this program: `sed 's/,"hash":"[0-9a-f]*"}$/}/' | sha256sum`,
//! without the newline.

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tapswitch_control::{TapPolicy, cut_text};

use crate::Caller;
use crate::clock::now_text;

/// A record to be written.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    at: String,
    caller: Caller,
    what: What,
    policy: Option<Box<TapPolicy>>,
    result: String,
}

/// The action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum What {
    #[serde(rename = "policy.add")]
    PolicyAdd,
    #[serde(rename = "policy.replace")]
    PolicyReplace,
    #[serde(rename = "policy.delete")]
    PolicyDelete,
    #[serde(rename = "policy.expire")]
    PolicyExpire,
    #[serde(rename = "policy.state")]
    PolicyState,
    #[serde(rename = "policy.move")]
    PolicyMove,
    #[serde(rename = "controller.start")]
    ControllerStart,
    #[serde(rename = "controller.stop")]
    ControllerStop,
    #[serde(rename = "controller.lead")]
    ControllerLead,
    #[serde(rename = "controller.follow")]
    ControllerFollow,
    #[serde(rename = "token.refused")]
    TokenRefused,
    #[serde(rename = "role.refused")]
    RoleRefused,
    #[serde(rename = "refusals.left-out")]
    RefusalsLeftOut,
    #[serde(rename = "records.left-out")]
    RecordsLeftOut,
    #[serde(rename = "packets.watch")]
    PacketsWatch,
    #[serde(rename = "packets.download")]
    PacketsDownload,
    #[serde(rename = "audit.export")]
    AuditExport,
}

/// A record as written; the order of the members is that of the line.
#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    at: &'a str,
    who: &'a str,
    role: crate::Role,
    from: &'a str,
    what: What,
    policy: Option<&'a TapPolicy>,
    reason: Option<&'a str>,
    until: Option<&'a str>,
    result: &'a str,
    previous: &'a str,
}

/// State of a log, from which the next record continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Number of the last record; zero if there is none.
    pub(crate) seq: u64,
    /// Its hash.
    pub(crate) hash: String,
}

/// Members needed to check a record.
#[derive(Deserialize)]
struct Links {
    seq: u64,
    previous: String,
    hash: String,
}

impl Draft {
    /// A record of an action now; `result` is `accepted`, or `refused: ` with the reason.
    pub(crate) fn new(caller: &Caller, what: What, result: impl Into<String>) -> Self {
        let (at, caller, mut result) = (now_text(), caller.clone(), result.into());
        // It may contain text from a request, of any length.
        cut_text(&mut result, MAX_RESULT_LEN);
        Self { at, caller, what, policy: None, result }
    }

    /// Adds the policy concerned.
    #[must_use]
    pub(crate) fn about(self, policy: &TapPolicy) -> Self {
        Self { policy: Some(Box::new(policy.clone())), ..self }
    }

    #[cfg(test)]
    pub(crate) fn result(&self) -> &str {
        &self.result
    }

    /// Approximate size of its record in bytes.
    pub(crate) fn size(&self) -> usize {
        let policy = self.policy.as_deref().map_or(0, json_len);
        policy + json_len(&self.result) + json_len(&self.caller.name) + MEMBERS_LEN
    }
}

/// In one line, for the process log. Requests chose some of its text, which cannot break the line.
impl fmt::Display for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Caller { name, role, from } = &self.caller;
        write!(f, "{} {name:?} ({role}) from {from}: ", self.at)?;
        self.what.serialize(&mut *f)?;
        if let Some(policy) = &self.policy {
            write!(f, " {:?}", policy.name)?;
        }
        write!(f, ": {:?}", self.result)
    }
}

/// Length of a value as JSON.
pub(crate) fn json_len(value: &impl Serialize) -> usize {
    // A serialisation error is reported when it is written.
    serde_json::to_vec(value).map_or(0, |bytes| bytes.len())
}

impl Head {
    /// State of an empty log.
    pub(crate) fn empty() -> Self {
        Self { seq: 0, hash: "0".repeat(HASH_LEN) }
    }

    /// State of a log that ends with this line.
    pub(crate) fn of(line: &str) -> Option<Self> {
        let links: Links = serde_json::from_str(line).ok()?;
        Some(Self { seq: links.seq, hash: links.hash })
    }

    /// The line that records this as the next one.
    pub(crate) fn append(&mut self, draft: &Draft) -> serde_json::Result<String> {
        let until = draft.policy.as_ref().and_then(|policy| policy.expires);
        let until = until.map(|expiry| expiry.to_string());
        let line = Line {
            seq: self.seq + 1,
            at: &draft.at,
            who: &draft.caller.name,
            role: draft.caller.role,
            from: &draft.caller.from,
            what: draft.what,
            policy: draft.policy.as_deref(),
            reason: draft.policy.as_ref().and_then(|policy| policy.reason.as_deref()),
            until: until.as_deref(),
            result: &draft.result,
            previous: &self.hash,
        };
        let text = serde_json::to_string(&line)?;
        let hash = sha256_hex(text.as_bytes());
        let body = text.strip_suffix('}').unwrap_or(&text);
        let sealed = format!("{body}{HASH_KEY}{hash}\"}}");
        *self = Self { seq: self.seq + 1, hash };
        Ok(sealed)
    }
}

/// Verifies consecutive records.
#[derive(Clone, Debug, Default)]
pub struct Verifier {
    /// State of the log up to the last verified record.
    head: Option<Head>,
}

impl Verifier {
    /// Verifies the next record. The first one may be any, as exports may start late.
    ///
    /// # Errors
    /// The record was changed, or does not follow the previous one.
    pub fn check(&mut self, line: &str) -> Result<(), ChainError> {
        let Some(links) = links(line) else {
            let after = self.head.as_ref().map_or(0, |head| head.seq);
            return Err(ChainError::NoRecord { after });
        };
        let Links { seq, previous, hash } = links;
        let body = line.strip_suffix(&format!("{HASH_KEY}{hash}\"}}"));
        let actual = body.map(|body| sha256_hex(format!("{body}}}").as_bytes()));
        if actual.as_ref() != Some(&hash) {
            return Err(ChainError::Changed { seq });
        }
        let expected = self.head.replace(Head { seq, hash });
        match expected {
            Some(head) if head.seq + 1 != seq => {
                Err(ChainError::Gap { seq, expected: head.seq + 1 })
            }
            Some(head) if head.hash != previous => Err(ChainError::Unlinked { seq }),
            None if seq == 1 && previous != Head::empty().hash => Err(ChainError::Unlinked { seq }),
            _ => Ok(()),
        }
    }

    /// Number and hash of the last verified record.
    pub fn head(&self) -> Option<(u64, &str)> {
        self.head.as_ref().map(|head| (head.seq, head.hash.as_str()))
    }
}

fn links(line: &str) -> Option<Links> {
    serde_json::from_str(line).ok()
}

/// How a log was tampered with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// Not a record.
    #[error(
        "the line after record {after} is not a record; the log was changed, or the file is \
         truncated"
    )]
    NoRecord {
        /// The previous record; zero if there is none.
        after: u64,
    },
    /// The record was changed.
    #[error("record {seq} was changed: its hash does not match its contents")]
    Changed {
        /// Its number.
        seq: u64,
    },
    /// Records are missing or duplicate.
    #[error("expected record {expected}, found {seq}: records are missing or were inserted")]
    Gap {
        /// The number found.
        seq: u64,
        /// The number expected.
        expected: u64,
    },
    /// Its predecessor is another record.
    #[error("record {seq} does not follow the one before it: that one was changed or replaced")]
    Unlinked {
        /// Its number.
        seq: u64,
    },
}

/// SHA-256 in hexadecimal.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Maximum characters of a result.
const MAX_RESULT_LEN: usize = 1024;
/// Maximum bytes of the members that every record has, including hashes.
const MEMBERS_LEN: usize = 512;
const HASH_KEY: &str = ",\"hash\":\"";
/// Hexadecimal digits of a SHA-256.
pub(crate) const HASH_LEN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_nobody_touched_is_found_whole() {
        let lines = log(5);
        assert_eq!(verify(&lines), Ok(5));
        assert_eq!(verify(&lines[2..]), Ok(5), "an export may begin late");
    }

    #[test]
    fn whatever_is_changed_is_found() {
        let original = log(5);
        let changed = |change: &dyn Fn(&mut Vec<String>)| {
            let mut lines = original.clone();
            change(&mut lines);
            verify(&lines).unwrap_err()
        };
        let who = changed(&|lines| lines[2] = lines[2].replace("unix:ann", "unix:bob"));
        assert_eq!(who, ChainError::Changed { seq: 3 });
        let removed = changed(&|lines| _ = lines.remove(1));
        assert_eq!(removed, ChainError::Gap { seq: 3, expected: 2 });
        let cut = changed(&|lines| lines[4].truncate(40));
        assert_eq!(cut, ChainError::NoRecord { after: 4 });
        let first = changed(&|lines| lines[0] = log_of("unix:eve", 1).remove(0));
        assert_eq!(first, ChainError::Unlinked { seq: 2 });
        let spaced = changed(&|lines| lines[3] = lines[3].replace("\"seq\":4", "\"seq\": 4"));
        assert_eq!(spaced, ChainError::Changed { seq: 4 });
    }

    #[test]
    fn a_line_can_be_checked_by_hand() {
        let line = log(1).remove(0);
        let (body, hash) = line.split_once(",\"hash\":\"").unwrap();
        let digest = Sha256::digest(format!("{body}}}"));
        assert_eq!(hash, format!("{}\"}}", hex(&digest)));
    }

    #[test]
    fn a_record_is_told_in_a_line_of_its_own() {
        let policy = TapPolicy::new("a\nb", "3".parse().unwrap());
        let draft = Draft::new(&Caller::unix("ann"), What::PolicyAdd, "refused: x\ny");
        let text = draft.about(&policy).to_string();
        assert!(text.ends_with(r#"policy.add "a\nb": "refused: x\ny""#), "{text}");
        assert!(text.contains("unix:ann") && !text.contains('\n'), "{text}");
    }

    #[test]
    fn a_result_has_an_end_and_its_size_is_known() {
        let mut draft = Draft::new(&Caller::unix("ann"), What::PolicyAdd, "x".repeat(60_000));
        draft = draft.about(&TapPolicy::new("n".repeat(5000), "3".parse().unwrap()));
        let line = Head::empty().append(&draft).unwrap();
        assert!((6000..7000).contains(&line.len()), "{}", line.len());
        assert!((line.len()..line.len() + MEMBERS_LEN).contains(&draft.size()));
    }

    fn log(count: usize) -> Vec<String> {
        log_of("unix:ann", count)
    }

    fn log_of(who: &str, count: usize) -> Vec<String> {
        let caller = Caller { name: who.to_owned(), ..Caller::unix("") };
        let mut head = Head::empty();
        let draft = Draft::new(&caller, What::PolicyAdd, "accepted");
        let draft = draft.about(&TapPolicy::new("a,\"hash\":\"", "3".parse().unwrap()));
        (0..count).map(|_| head.append(&draft).unwrap()).collect()
    }

    fn verify(lines: &[String]) -> Result<u64, ChainError> {
        let mut verifier = Verifier::default();
        lines.iter().try_for_each(|line| verifier.check(line))?;
        Ok(verifier.head().unwrap().0)
    }
}
