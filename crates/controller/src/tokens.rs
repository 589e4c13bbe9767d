//! The token file of REST: names, roles and hashes of tokens.
//!
//! ```toml
//! [[token]]
//! name = "ann"
//! role = "operator"
//! sha256 = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
//! ```
//!
//! The tokens themselves are not stored: they have 256 random bits, so a plain SHA-256 reveals
//! nothing about them. The file is reloaded when it has changed, which is checked when a token is
//! used, at most once a second. An invalid file is reported and has no effect.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use subtle::{Choice, ConstantTimeEq};

use crate::audit::{HASH_LEN, hex, sha256_hex};
use crate::caller::RESERVED;
use crate::{Role, random};

/// The valid tokens.
#[derive(Debug)]
pub(crate) struct Tokens {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tokens: Vec<Token>,
    stamp: Stamp,
    looked_at: Instant,
}

/// Identifies a version of a file; the default is no file.
type Stamp = (u64, i64, i64, u64);

/// One token.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Token {
    /// Name of its owner.
    pub(crate) name: String,
    pub(crate) role: Role,
    /// In hexadecimal.
    pub(crate) sha256: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries {
    #[serde(default)]
    token: Vec<Token>,
}

/// A new token.
#[derive(Debug)]
pub struct NewToken {
    /// The secret for its owner; not stored anywhere.
    pub secret: String,
    /// The entry for the token file.
    pub entry: String,
    name: String,
}

impl NewToken {
    /// Generates a token of 256 random bits.
    ///
    /// # Errors
    /// The name is invalid, or the kernel has no random bytes.
    pub fn make(name: &str, role: Role) -> Result<Self, TokenError> {
        check_name(name)?;
        let mut bytes = [0; 32];
        random::fill(&mut bytes).map_err(TokenError::Random)?;
        let secret = format!("{PREFIX}{}", hex(&bytes));
        let hash = sha256_hex(secret.as_bytes());
        let entry = format!("[[token]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = \"{hash}\"");
        Ok(Self { secret, entry, name: name.to_owned() })
    }

    /// Appends the entry to a token file, which is created if missing, with access for its owner
    /// only.
    ///
    /// # Errors
    /// The file is invalid for the controller, with or without the new token. It is unchanged then.
    pub fn append(&self, path: &Path) -> Result<(), TokenError> {
        let io = |source| TokenError::Append { path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).append(true).create(true).mode(0o600).open(path).map_err(io)?;
        // A concurrent writer waits, and sees this token.
        file.lock().map_err(io)?;
        check_mode(path, &file.metadata().map_err(io)?)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(io)?;
        let tokens = parse_file(path, &text)?;
        if tokens.iter().any(|token| token.name == self.name) {
            return Err(TokenError::Taken { path: path.to_owned(), name: self.name.clone() });
        }
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        write_whole(&mut file, &format!("{end}{}\n", self.entry)).map_err(io)
    }
}

impl Tokens {
    /// Reads the file.
    pub(crate) fn open(path: &Path) -> Result<Self, TokenError> {
        let (tokens, stamp) = read(path)?;
        let state = State { tokens, stamp, looked_at: Instant::now() };
        Ok(Self { path: path.to_owned(), state: Mutex::new(state) })
    }

    /// The token with this secret.
    pub(crate) fn find(&self, secret: &str) -> Option<Token> {
        self.find_hash(&sha256_hex(secret.as_bytes()))
    }

    /// The token with this hash. Constant time: the duration does not reveal how much of it
    /// matched.
    pub(crate) fn find_hash(&self, hash: &str) -> Option<Token> {
        let mut state = self.lock();
        if state.looked_at.elapsed() >= LOOK_AGAIN {
            self.look(&mut state);
        }
        let same = |token: &&Token| token.sha256.as_bytes().ct_eq(hash.as_bytes());
        let found = state.tokens.iter().fold((None, Choice::from(0)), |(found, any), token| {
            let is_it = same(&token);
            (if bool::from(is_it) { Some(token) } else { found }, any | is_it)
        });
        found.0.cloned()
    }

    /// Reloads the file now; returns the number of tokens.
    ///
    /// # Errors
    /// The file is invalid; the previous tokens stay in use. The log has it, too.
    pub(crate) fn reload(&self) -> Result<usize, TokenError> {
        self.read_again(&mut self.lock())
    }

    /// Reloads the file if it has changed. An error is reported once.
    fn look(&self, state: &mut State) {
        if self.stamp() == state.stamp {
            state.looked_at = Instant::now();
        } else {
            // It is reported there.
            let _ = self.read_again(state);
        }
    }

    fn read_again(&self, state: &mut State) -> Result<usize, TokenError> {
        (state.looked_at, state.stamp) = (Instant::now(), self.stamp());
        let result = read(&self.path).map(|(tokens, stamp)| {
            (state.tokens, state.stamp) = (tokens, stamp);
            state.tokens.len()
        });
        match &result {
            Ok(count) => tracing::info!("{}: {count} tokens", self.path.display()),
            Err(error) => tracing::error!("{error}; the previous tokens stay in use"),
        }
        result
    }

    /// The current version of the file.
    fn stamp(&self) -> Stamp {
        fs::metadata(&self.path).map_or_else(|_| Stamp::default(), |meta| stamp(&meta))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The content is consistent whenever the lock is free.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The mode of a secret file, if it is too open: writable by others than its owner, or readable
/// beyond its group.
pub(crate) fn open_mode(meta: &Metadata) -> Option<u32> {
    let mode = meta.permissions().mode() & 0o777;
    (mode & 0o027 != 0).then_some(mode)
}

fn read(path: &Path) -> Result<(Vec<Token>, Stamp), TokenError> {
    let io = |source| TokenError::Io { path: path.to_owned(), source };
    let meta = fs::metadata(path).map_err(io)?;
    check_mode(path, &meta)?;
    let text = fs::read_to_string(path).map_err(io)?;
    Ok((parse_file(path, &text)?, stamp(&meta)))
}

fn check_mode(path: &Path, meta: &Metadata) -> Result<(), TokenError> {
    match open_mode(meta) {
        Some(mode) => Err(TokenError::Permissions { path: path.to_owned(), mode }),
        None => Ok(()),
    }
}

fn parse_file(path: &Path, text: &str) -> Result<Vec<Token>, TokenError> {
    parse(text).map_err(|what| TokenError::Wrong { path: path.to_owned(), what })
}

/// Appends everything or nothing: a partial entry would invalidate the file.
fn write_whole(file: &mut File, text: &str) -> io::Result<()> {
    let len = file.metadata()?.len();
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        // If that fails, too, the first error is reported.
        _ = file.set_len(len);
    }
    written
}

fn parse(text: &str) -> Result<Vec<Token>, String> {
    let Entries { token: tokens } = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut names = BTreeSet::new();
    for token in &tokens {
        check_name(&token.name).map_err(|error| error.to_string())?;
        if !names.insert(&token.name) {
            return Err(format!("token {} is defined twice; give each its own name", token.name));
        }
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if token.sha256.len() != HASH_LEN || !token.sha256.bytes().all(is_hex) {
            let name = &token.name;
            return Err(format!("token {name}: sha256 must have {HASH_LEN} digits 0-9 and a-f"));
        }
    }
    Ok(tokens)
}

fn check_name(name: &str) -> Result<(), TokenError> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
        return Err(TokenError::Reserved { name: name.to_owned() });
    }
    match (1..=MAX_NAME_LEN).contains(&name.len()) && name.chars().all(is_good) {
        true => Ok(()),
        false => Err(TokenError::Name { name: name.to_owned() }),
    }
}

fn stamp(meta: &Metadata) -> Stamp {
    (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.len())
}

/// Why tokens cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error(
        "tokens {}: {source}; `tapswitch token new NAME --role ROLE --file {}` creates it",
        path.display(), path.display()
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A token cannot be appended.
    #[error("tokens {}: {source}; nothing was added", path.display())]
    Append {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The name is in use.
    #[error(
        "tokens {}: token {name} already exists; choose another name, or remove that entry",
        path.display()
    )]
    Taken {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// The file is accessible to others.
    #[error(
        "tokens {}: other users may access this file (mode {mode:03o}); run `chmod 600 \
         {}`", path.display(), path.display()
    )]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The content is invalid.
    #[error("tokens {}: {what}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The error.
        what: String,
    },
    /// The name is invalid.
    #[error("token {name:?}: a name has 1 to {MAX_NAME_LEN} letters, digits and -_.@")]
    Name {
        /// The name.
        name: String,
    },
    /// The name is reserved.
    #[error(
        "token {name:?}: reserved in the audit log for users without a token ({}); choose another \
         name", RESERVED.join(", ")
    )]
    Reserved {
        /// The name.
        name: String,
    },
    /// No random bytes.
    #[error("cannot get random bytes from the kernel: {0}; getrandom(2) needs Linux 3.17")]
    Random(io::Error),
}

/// Makes a leaked token recognisable.
const PREFIX: &str = "tapswitch-";
const MAX_NAME_LEN: usize = 64;
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_token_is_found_by_what_the_file_says_of_it() {
        let made = NewToken::make("ann", Role::Operator).unwrap();
        let (directory, path) = file(&made.entry, 0o600);
        let tokens = Tokens::open(&path).unwrap();
        let found = tokens.find(&made.secret).unwrap();
        assert_eq!((found.name.as_str(), found.role), ("ann", Role::Operator));
        assert_eq!(tokens.find(&made.secret[..made.secret.len() - 1]), None);
        assert_eq!(tokens.find(""), None);
        assert!(!made.entry.contains(&made.secret));
        drop(directory);
    }

    #[test]
    fn a_token_is_added_where_the_controller_takes_it() {
        let [ann, bob] = ["ann", "bob"].map(|name| NewToken::make(name, Role::Viewer).unwrap());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        ann.append(&path).unwrap();
        assert_eq!(open_mode(&fs::metadata(&path).unwrap()), None);
        // As some editors leave it.
        fs::write(&path, fs::read_to_string(&path).unwrap().trim_end()).unwrap();
        bob.append(&path).unwrap();
        let tokens = Tokens::open(&path).unwrap();
        assert!(tokens.find(&ann.secret).is_some() && tokens.find(&bob.secret).is_some());
    }

    #[test]
    fn what_the_controller_would_refuse_is_not_written() {
        let ann = NewToken::make("ann", Role::Viewer).unwrap();
        let twice = NewToken::make("ann", Role::Admin).unwrap();
        let cases = [
            (ann.entry.clone(), 0o600, "token ann already exists; choose another name"),
            (String::new(), 0o644, "chmod 600"),
            ("[[tokens]]\n".to_owned(), 0o600, "unknown field `tokens`"),
        ];
        for (text, mode, told) in cases {
            let (_directory, path) = file(&text, mode);
            let error = twice.append(&path).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_token_is_not_called_as_those_are_who_have_none() {
        for name in ["configuration", "controller", "local", "unknown", "Configuration"] {
            let error = NewToken::make(name, Role::Viewer).unwrap_err().to_string();
            assert!(error.contains("choose another name"), "{error}");
        }
    }

    #[test]
    fn a_file_that_others_may_use_is_refused() {
        for mode in [0o644, 0o602, 0o660] {
            let (_directory, path) = file("", mode);
            let error = Tokens::open(&path).unwrap_err().to_string();
            assert!(error.contains("chmod 600"), "{mode:o}: {error}");
        }
        let (_directory, path) = file("", 0o640);
        assert!(Tokens::open(&path).is_ok(), "a group may read it");
    }

    #[test]
    fn a_changed_file_counts_and_a_wrong_one_does_not() {
        let made = NewToken::make("ann", Role::Viewer).unwrap();
        let (_directory, path) = file(&made.entry, 0o600);
        let tokens = Tokens::open(&path).unwrap();
        fs::write(&path, "[[token]]\nname = 1\n").unwrap();
        tokens.reload().unwrap_err();
        assert!(tokens.find(&made.secret).is_some(), "as before");
        fs::write(&path, "").unwrap();
        assert_eq!(tokens.reload().unwrap(), 0);
        assert_eq!(tokens.find(&made.secret), None);
        fs::remove_file(&path).unwrap();
        for _ in 0..2 {
            let error = tokens.reload().unwrap_err().to_string();
            assert!(error.contains("No such file"), "whenever it is asked for: {error}");
            assert!(error.contains(&format!("--file {}` creates it", path.display())), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let hash = "a".repeat(64);
        let token = |name: &str, role: &str, hash: &str| {
            format!("[[token]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = \"{hash}\"\n")
        };
        let twice = token("a", "viewer", &hash).repeat(2);
        for (text, told) in [
            (twice, "token a is defined twice"),
            (token("a", "viewer", "abc"), "64 digits"),
            (token("a", "viewer", &"A".repeat(64)), "64 digits"),
            (token("a", "root", &hash), "unknown variant `root`"),
            (token("a b", "viewer", &hash), "letters, digits"),
            (token("configuration", "viewer", &hash), "choose another name"),
            ("[[tokens]]\n".to_owned(), "unknown field `tokens`"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (directory, path)
    }
}
