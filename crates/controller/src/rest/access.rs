//! Authentication and authorization.
//!
//! **By a token**: `Authorization: Bearer TOKEN`. **By a session**: a cookie obtained for a token,
//! for browsers' event streams and downloads; it ends with its token. Changes by a session need the
//! header `X-Tapswitch`, which no page of another site can send.
//!
//! **Without a file of tokens** the server listens on loopback only, unless configured otherwise.
//! The owners of the controller ([`Owners`]) are `local` and may do everything; other users of this
//! machine may read, as `uid:` with their number. As a page of another site could make a browser on
//! this machine send requests (DNS rebinding), requests whose `Host` is not a name of this machine
//! are refused.
//!
//! **Browsers** report which site's page caused a request (`Sec-Fetch-Site`, and `Origin` for
//! changes): those of other sites are refused, whoever is signed in.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode};

use super::ending::Ending;
use super::error::Refusal;
use super::refusals::{Refusals, WrongToken};
use crate::audit::{hex, sha256_hex};
use crate::caller::{LOCAL, NOBODY};
use crate::neighbour::Owners;
use crate::tokens::{Token, Tokens};
use crate::{Caller, Role, random};

/// Decides who may send requests.
#[derive(Debug)]
pub(super) struct Gate {
    /// `None` if everybody is `local`.
    tokens: Option<Tokens>,
    /// Whether other host names are accepted if everybody is `local`.
    is_open: bool,
    /// Owners of this controller.
    owners: Owners,
    sessions: Mutex<HashMap<String, Session>>,
    pub(super) refusals: Refusals,
}

#[derive(Clone, Debug)]
struct Session {
    /// Hash of its token.
    token: String,
    until: Instant,
}

/// An authenticated caller with the credentials used.
#[derive(Clone, Debug)]
pub(super) struct Admitted {
    pub(super) caller: Caller,
    /// Hash of the token, if tokens are required.
    token: Option<String>,
    /// Hash of the session's name, if one was used.
    session: Option<String>,
}

/// Why a caller is refused.
#[derive(Debug)]
pub(super) struct Rejection {
    pub(super) refusal: Refusal,
    /// Whether it is recorded in the audit log: a wrong token is, unless there are too many; a
    /// missing one is not.
    pub(super) is_recorded: bool,
}

impl Gate {
    pub(super) fn new(tokens: Option<Tokens>, is_open: bool) -> Self {
        let owners = Owners::of_this_process();
        let (sessions, refusals) = (Mutex::default(), Refusals::default());
        Self { tokens, is_open, owners, sessions, refusals }
    }

    /// Whether the local user of a connection matters.
    pub(super) const fn asks_for_user(&self) -> bool {
        self.tokens.is_none() && !self.is_open
    }

    /// Reloads the tokens.
    pub(super) fn reload(&self) {
        if let Some(tokens) = &self.tokens {
            // It reports an error itself.
            let _ = tokens.reload();
        }
    }

    /// Whether tokens are required.
    pub(super) const fn asks_for_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Describes who may do what without tokens.
    pub(super) const fn who_may(&self) -> &'static str {
        match self.is_open {
            true => "every client has all rights, as local",
            false => {
                "root and the user that runs the controller have all rights, as local; other local \
                 users have read access"
            }
        }
    }

    /// Remedy for a caller without permission.
    pub(super) const fn remedy(&self) -> &'static str {
        match self.tokens {
            Some(_) => "ask the administrator of the controller for another token",
            None => {
                "without tokens only root and the user that runs the controller may: run the \
                 request as one of them, or set up tokens (tapswitch token new, --tokens)"
            }
        }
    }

    /// Authenticates a request.
    pub(super) fn admit(
        &self,
        (peer, user): (SocketAddr, Option<u32>),
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Admitted, Rejection> {
        check_site(headers)?;
        check_origin(method, headers)?;
        let Some(tokens) = &self.tokens else {
            return self.admit_local((peer, user), headers);
        };
        if let Some(secret) = bearer(headers) {
            return self.admit_token(peer, secret);
        }
        let key = cookie(headers).map(|id| sha256_hex(id.as_bytes()));
        let Some((key, session)) = key.and_then(|key| Some((key.clone(), self.session(&key)?)))
        else {
            return Err(Rejection::quiet(no_token()));
        };
        let Some(token) = tokens.find_hash(&session.token) else {
            return Err(Rejection::quiet(no_token()));
        };
        if is_change(method) && !headers.contains_key(MARK) {
            let message = "changes in a session need the header X-Tapswitch: 1";
            let refusal = Refusal::new(StatusCode::FORBIDDEN, "cross-site", message);
            return Err(Rejection::quiet(refusal));
        }
        Ok(Admitted { session: Some(key), ..Admitted::by(token, peer) })
    }

    /// Authenticates a token. After repeated wrong ones a network is told to wait, and only their
    /// number is recorded; a valid token is always accepted, also from there. As nobody guesses 256
    /// random bits, the limit protects the audit log, not the tokens.
    pub(super) fn admit_token(
        &self,
        peer: SocketAddr,
        secret: &str,
    ) -> Result<Admitted, Rejection> {
        let Some(tokens) = &self.tokens else {
            let message = "this controller does not use tokens; leave it out";
            return Err(Rejection::quiet(Refusal::malformed(message)));
        };
        if let Some(token) = tokens.find(secret) {
            return Ok(Admitted::by(token, peer));
        }
        let wrong = self.refusals.handle_token(peer.ip(), Instant::now());
        if wrong == WrongToken::TooMany {
            let message = "too many wrong tokens from this address; wait a minute";
            let status = StatusCode::TOO_MANY_REQUESTS;
            return Err(Rejection::quiet(Refusal::new(status, "too-many-attempts", message)));
        }
        let message = "the token is not valid; ask the administrator of the controller for one";
        let refusal = Refusal::new(StatusCode::UNAUTHORIZED, "bad-token", message);
        Err(Rejection { refusal, is_recorded: wrong == WrongToken::Recorded })
    }

    /// Whether a caller's credentials are still valid.
    pub(super) fn check(&self, admitted: &Admitted) -> Result<(), Ending> {
        let role = admitted.caller.role;
        let is_known = match (&self.tokens, &admitted.token) {
            (Some(tokens), Some(hash)) => {
                tokens.find_hash(hash).is_some_and(|token| token.role == role)
            }
            (None, None) => true,
            _ => false,
        };
        let has_session = |key: &String| self.session(key).is_some();
        match is_known {
            false => Err(Ending::TokenRevoked),
            true if !admitted.session.iter().all(has_session) => Err(Ending::SessionEnded),
            true => Ok(()),
        }
    }

    /// Opens a session; returns the value of its cookie.
    pub(super) fn open_session(&self, admitted: &Admitted) -> Result<String, Refusal> {
        let mut bytes = [0; 32];
        random::fill(&mut bytes).map_err(|error| {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            Refusal::new(status, "no-random-bytes", format!("cannot create a session: {error}"))
        })?;
        let id = hex(&bytes);
        let token = admitted.token.clone().unwrap_or_default();
        let session = Session { token, until: Instant::now() + SESSION_AGE };
        let mut sessions = lock(&self.sessions);
        make_room(&mut sessions, &session.token);
        sessions.insert(sha256_hex(id.as_bytes()), session);
        Ok(id)
    }

    /// Ends the session of this request, if any.
    pub(super) fn close_session(&self, headers: &HeaderMap) {
        if let Some(id) = cookie(headers) {
            lock(&self.sessions).remove(&sha256_hex(id.as_bytes()));
        }
    }

    /// The session with this hash of its name.
    fn session(&self, key: &str) -> Option<Session> {
        let mut sessions = lock(&self.sessions);
        let session = sessions.get(key)?.clone();
        if session.until <= Instant::now() {
            sessions.remove(key);
            return None;
        }
        Some(session)
    }

    fn admit_local(
        &self,
        (peer, user): (SocketAddr, Option<u32>),
        headers: &HeaderMap,
    ) -> Result<Admitted, Rejection> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        if !self.is_open && host.is_some_and(|host| !is_loopback(host)) {
            let message = "without tokens only local names such as localhost are allowed; use one, \
                           or set up tokens with --tokens";
            let refusal = Refusal::new(StatusCode::FORBIDDEN, "unknown-host", message);
            return Err(Rejection::quiet(refusal));
        }
        let is_owner = self.is_open || user.is_some_and(|user| self.owners.are(user));
        let (name, role) = match user {
            _ if is_owner => (LOCAL.to_owned(), Role::Admin),
            Some(uid) => (format!("uid:{uid}"), Role::Viewer),
            None => (NOBODY.to_owned(), Role::Viewer),
        };
        let caller = Caller { name, role, from: peer.ip().to_string() };
        Ok(Admitted { caller, token: None, session: None })
    }
}

impl Admitted {
    fn by(token: Token, peer: SocketAddr) -> Self {
        let Token { name, role, sha256 } = token;
        let caller = Caller { name, role, from: peer.ip().to_string() };
        Self { caller, token: Some(sha256), session: None }
    }
}

impl Rejection {
    const fn quiet(refusal: Refusal) -> Self {
        Self { refusal, is_recorded: false }
    }
}

fn no_token() -> Refusal {
    let message = "a token is needed: Authorization: Bearer TOKEN, or a session created with one";
    Refusal::new(StatusCode::UNAUTHORIZED, "no-token", message)
}

/// Requires that a browser's request under `/api/v1` was caused by our page or by the user. Reading
/// has effects, too: it may write audit records. <https://www.w3.org/TR/fetch-metadata/>
pub(super) fn check_site(headers: &HeaderMap) -> Result<(), Rejection> {
    let site = headers.get(FETCH_SITE).and_then(|site| site.to_str().ok());
    match site {
        Some("cross-site" | "same-site") => {
            let message =
                "requests from pages of other sites are not allowed; open this address itself";
            Err(Rejection::quiet(Refusal::new(StatusCode::FORBIDDEN, "cross-site", message)))
        }
        _ => Ok(()),
    }
}

/// Requires that a browser's change was caused by our page.
fn check_origin(method: &Method, headers: &HeaderMap) -> Result<(), Rejection> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(origin) = text(ORIGIN).filter(|_| is_change(method)) else { return Ok(()) };
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    if authority.is_some() && authority == text(HOST) {
        return Ok(());
    }
    let message = format!("changes from pages of {origin} are not allowed");
    Err(Rejection::quiet(Refusal::new(StatusCode::FORBIDDEN, "cross-site", message)))
}

fn is_change(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, secret) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

fn cookie(headers: &HeaderMap) -> Option<String> {
    let all = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|text| text.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| name.trim() == COOKIE_NAME).map(|(_, id)| id.trim().to_owned())
}

/// Whether the header's `host` is a name of this machine that no other machine can have.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = address.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    is_loopback || name.eq_ignore_ascii_case("localhost")
}

/// Makes room for a session of this token: the oldest session of the token with the most is ended,
/// so that repeated sign-ins sign nobody else out.
fn make_room(sessions: &mut HashMap<String, Session>, token: &str) {
    let now = Instant::now();
    sessions.retain(|_, session| session.until > now);
    if sessions.len() < MAX_SESSIONS {
        return;
    }
    let mut counts = HashMap::from([(token, 1)]);
    for session in sessions.values() {
        *counts.entry(session.token.as_str()).or_default() += 1;
    }
    let rank = |session: &Session| (counts.get(session.token.as_str()), Reverse(session.until));
    let gone = sessions.iter().max_by_key(|(_, session)| rank(session));
    let gone = gone.map(|(id, _)| id.clone());
    gone.and_then(|id| sessions.remove(&id));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The content is consistent whenever the lock is free.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) const COOKIE_NAME: &str = "tapswitch";
const MARK: &str = "x-tapswitch";
const FETCH_SITE: &str = "sec-fetch-site";
pub(super) const SESSION_AGE: Duration = Duration::from_secs(12 * 3600);
/// Maximum number of sessions.
const MAX_SESSIONS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn peer() -> SocketAddr {
        "127.0.0.1:1".parse().unwrap()
    }

    fn code(result: Result<Admitted, Rejection>) -> &'static str {
        result.map_or_else(|rejection| rejection.refusal.code, |_| "admitted")
    }

    #[test]
    fn names_that_are_this_machines_alone() {
        for host in ["localhost", "LOCALHOST:8653", "127.0.0.1:80", "127.9.9.9", "[::1]:8653"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["example.org", "localhost.example.org:8653", "10.0.0.1", "", "[::2]:80"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_page_of_another_site_gets_nowhere_without_tokens() {
        let gate = Gate::new(None, false);
        let ask = |method: Method, pairs: &[_]| {
            code(gate.admit((peer(), Some(0)), &method, &headers(pairs)))
        };
        assert_eq!(ask(Method::GET, &[("host", "localhost:8653")]), "admitted");
        assert_eq!(ask(Method::GET, &[("host", "rebound.example.org")]), "unknown-host");
        let ours = [("host", "localhost:8653"), ("origin", "http://localhost:8653")];
        assert_eq!(ask(Method::POST, &ours), "admitted");
        let other = [("host", "localhost:8653"), ("origin", "http://example.org")];
        assert_eq!(ask(Method::DELETE, &other), "cross-site");
        let hidden = [("host", "localhost:8653"), ("origin", "null")];
        assert_eq!(ask(Method::POST, &hidden), "cross-site");
        for (site, told) in [
            ("cross-site", "cross-site"),
            ("same-site", "cross-site"),
            ("same-origin", "admitted"),
            ("none", "admitted"),
        ] {
            let pairs = [("host", "localhost:8653"), ("sec-fetch-site", site)];
            assert_eq!(ask(Method::GET, &pairs), told, "{site}");
        }
    }

    #[test]
    fn other_users_of_this_machine_look_and_no_more() {
        let who = |is_open: bool, user: Option<u32>| {
            let gate = Gate::new(None, is_open);
            let admitted = gate.admit((peer(), user), &Method::GET, &HeaderMap::new()).unwrap();
            (admitted.caller.name, admitted.caller.role)
        };
        let local = || ("local".to_owned(), Role::Admin);
        let own = rustix::process::geteuid().as_raw();
        assert_eq!([Some(0), Some(own)].map(|user| who(false, user)), [local(), local()]);
        assert_eq!(who(false, Some(54_321)), ("uid:54321".to_owned(), Role::Viewer));
        assert_eq!(who(false, None), ("unknown".to_owned(), Role::Viewer));
        assert_eq!(who(true, None), local(), "--insecure");
    }

    #[test]
    fn sessions_are_bounded() {
        let gate = Gate::new(None, false);
        let admitted = gate.admit((peer(), Some(0)), &Method::GET, &HeaderMap::new()).unwrap();
        let first = gate.open_session(&admitted).unwrap();
        for _ in 0..MAX_SESSIONS {
            gate.open_session(&admitted).unwrap();
        }
        assert!(gate.session(&sha256_hex(first.as_bytes())).is_none());
        assert_eq!(lock(&gate.sessions).len(), MAX_SESSIONS);
    }

    #[test]
    fn who_signs_in_again_and_again_signs_nobody_else_out() {
        let gate = Gate::new(None, false);
        let of = |name: &str, role| {
            let (name, from) = (name.to_owned(), "192.0.2.1".to_owned());
            let (token, session) = (Some(sha256_hex(name.as_bytes())), None);
            Admitted { caller: Caller { name, role, from }, token, session }
        };
        let admin = gate.open_session(&of("admin", Role::Admin)).unwrap();
        let viewer = of("viewer", Role::Viewer);
        let first = gate.open_session(&viewer).unwrap();
        for _ in 0..MAX_SESSIONS * 2 {
            gate.open_session(&viewer).unwrap();
        }
        let goes_on = |id: &String| gate.session(&sha256_hex(id.as_bytes())).is_some();
        assert_eq!([&admin, &first].map(goes_on), [true, false]);
    }
}
