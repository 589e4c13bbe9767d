//! The REST server for people, the page, and scripts.
//!
//! The table [`routes`] lists all paths and the required roles; the OpenAPI document `openapi.json`
//! describes the same, and tests compare the two. Requests go to the hub through a [`Handle`], like
//! those on the management socket.
//!
//! **Limits.** Bodies of 64 KiB, heads of 32 KiB within ten seconds, responses within thirty, pages
//! of 1,000 items, 512 connections by default; see also [`crate::net`].

mod access;
mod details;
mod ending;
mod error;
mod filters;
mod lists;
mod live;
mod log;
mod looks;
mod metrics;
mod network;
mod packets;
mod policies;
mod refusals;
mod series;
mod session;
mod topology;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{DefaultBodyLimit, Extension, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post, put};
use serde_json::{Value, json};
use tapswitch_control::Limits;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::audit::{Draft, What};
use crate::caller::NOBODY;
use crate::clock::now_text;
use crate::cluster::TermId;
use crate::hub::Loads;
use crate::keeper::refused;
use crate::net::{self, Peer, Terms};
use crate::places::Places;
use crate::tls::Tls;
use crate::tokens::Tokens;
use crate::{BindError, Caller, Handle, RestConfig, Role, StoreConfig};
use access::{Admitted, Gate, Rejection};
use ending::Ending;
use error::Refusal;
use series::AllSeries;

/// A bound REST server; [`Self::run`] serves.
#[derive(Debug)]
pub(crate) struct Rest {
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    gate: Arc<Gate>,
    write_timeout: Duration,
    places: Arc<Places>,
}

/// What REST can reload.
#[derive(Clone, Debug)]
pub(crate) struct RestFiles {
    gate: Arc<Gate>,
    tls: Option<Arc<Tls>>,
}

impl RestFiles {
    /// Reloads the tokens.
    pub(crate) fn reload_tokens(&self) {
        self.gate.reload();
    }

    /// The certificates.
    pub(crate) const fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }
}

/// State of the handlers. Cheap to clone.
#[derive(Clone, Debug)]
struct Api {
    handle: Handle,
    gate: Arc<Gate>,
    series: Arc<AllSeries>,
    started_at: Arc<str>,
    facts: Arc<Facts>,
    refreshed: Arc<tokio::sync::Mutex<Option<Instant>>>,
    loads: Arc<tokio::sync::Mutex<LastLoads>>,
    details: Arc<details::Last>,
    looks: Arc<looks::Looks>,
    /// Permits for checking filters.
    checks: Arc<Semaphore>,
    places: Arc<Places>,
    ended: watch::Receiver<bool>,
}

/// Loads of ports, and when they were read.
#[derive(Debug, Default)]
struct LastLoads {
    at: Option<Instant>,
    loads: Arc<Loads>,
}

/// Constant data.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) limits: Limits,
    pub(crate) store: &'static str,
    pub(crate) max_events: usize,
    /// Places for switches.
    pub(crate) switch_places: Arc<Places>,
}

impl Facts {
    pub(crate) fn of(config: &crate::Config, switch_places: Arc<Places>) -> Self {
        let store = match config.store {
            StoreConfig::None => "memory",
            StoreConfig::File(_) => "disk",
            StoreConfig::Etcd(_) => "etcd",
        };
        let (limits, max_events) = (config.limits.clone(), config.max_events);
        Self { limits, store, max_events, switch_places }
    }
}

impl Rest {
    /// Binds the address, and reads tokens and certificates.
    pub(crate) async fn bind(config: &RestConfig) -> Result<Self, BindError> {
        let address = config.listen;
        let is_guarded = config.tokens.is_some() && config.tls.is_some();
        if !address.ip().is_loopback() && !is_guarded && !config.is_insecure {
            return Err(BindError::Unguarded { address });
        }
        let tokens = config.tokens.as_deref().map(Tokens::open).transpose()?;
        let tls =
            config.tls.clone().map(|files| Tls::open(files, "http://")).transpose()?.map(Arc::new);
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| BindError::rest(address, error))?;
        let gate = Arc::new(Gate::new(tokens, config.is_insecure));
        let places = Places::new("REST", config.max_connections);
        Ok(Self { listener, tls, gate, write_timeout: config.write_timeout, places })
    }

    /// Bound address.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// The same as a URL, unless the address is a wildcard.
    pub(crate) fn url(&self) -> Option<String> {
        let address = self.local_addr().filter(|address| !address.ip().is_unspecified())?;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Some(format!("{scheme}://{address}"))
    }

    pub(crate) fn reloader(&self) -> RestFiles {
        RestFiles { gate: Arc::clone(&self.gate), tls: self.tls.clone() }
    }

    /// Serves until the server has ended, or until it is dropped.
    pub(crate) async fn run(self, handle: Handle, facts: Facts, ended: watch::Receiver<bool>) {
        let Self { listener, tls, gate, write_timeout, places } = self;
        let scheme = if tls.is_some() { "https" } else { "http" };
        if let Ok(address) = listener.local_addr() {
            tracing::info!("REST on {scheme}://{address}");
        }
        if !gate.asks_for_tokens() {
            tracing::warn!("REST: no tokens: {}", gate.who_may());
        }
        let api = Api {
            handle,
            gate,
            series: Arc::default(),
            started_at: now_text().into(),
            facts: Arc::new(facts),
            refreshed: Arc::default(),
            loads: Arc::default(),
            details: Arc::default(),
            looks: Arc::default(),
            checks: Arc::new(Semaphore::new(filters::CHECKS)),
            places: Arc::clone(&places),
            ended: ended.clone(),
        };
        let ticker = tick(api.clone());
        let asks_for_user = api.gate.asks_for_user();
        let terms = Terms { tls, write_timeout, places, asks_for_user, ended };
        tokio::select! {
            () = net::serve(listener, terms, router(api)) => {}
            () = ticker => {}
        }
    }
}

impl Api {
    /// Makes sure that counters are fresh. Concurrent callers share one request.
    async fn refresh(&self) -> Result<(), Refusal> {
        let mut refreshed = self.refreshed.lock().await;
        if refreshed.is_none_or(|at| at.elapsed() >= FRESH) {
            self.handle.refresh().await?;
            *refreshed = Some(Instant::now());
        }
        Ok(())
    }

    /// Loads of ports, from counters that are read while they are in demand.
    async fn loads(&self) -> Result<Arc<Loads>, Refusal> {
        let mut last = self.loads.lock().await;
        if last.at.is_none_or(|at| at.elapsed() >= LOADS_FRESH) {
            if let Some(loads) = self.handle.loads().await? {
                last.loads = Arc::new(loads);
            }
            last.at = Some(Instant::now());
        }
        Ok(Arc::clone(&last.loads))
    }

    /// Refuses a request, with an audit record unless there are too many.
    async fn reject(&self, peer: SocketAddr, rejection: Rejection) -> Refusal {
        let Rejection { refusal, is_recorded } = rejection;
        if is_recorded {
            let from = peer.ip().to_string();
            let nobody = Caller { name: NOBODY.to_owned(), role: Role::Viewer, from };
            let result = refused(&refusal.message);
            self.handle.record(Draft::new(&nobody, What::TokenRefused, result)).await;
        }
        refusal
    }

    /// Records the number of refusals that were not recorded individually.
    async fn record_left_out(&self) {
        if let Some(count) = self.gate.refusals.take_left_out(Instant::now()) {
            let result = format!("refused: {count} more were left out");
            let draft = Draft::new(&Caller::controller(), What::RefusalsLeftOut, result);
            self.handle.record(draft).await;
        }
    }

    /// Waits until the server stops, or until the controller's role in this term has changed, so
    /// that events are reported by another one.
    fn ended(&self, term: TermId) -> impl Future<Output = Ending> + Send + use<> {
        let (mut ended, term) = (self.ended.clone(), self.handle.ended(term));
        async move {
            tokio::select! {
                // An error means that the sender is gone, so the server has stopped.
                _ = ended.wait_for(|ended| *ended) => Ending::Stopped,
                ended = term => ended.map_or(Ending::Stopped, |()| Ending::NotLeader),
            }
        }
    }

    /// Publishes totals, and adds points to the policies' series.
    async fn tick(&self) -> Result<(), Refusal> {
        self.refresh().await?;
        let policies = self.handle.known_policies().await?;
        self.series.take(&policies, Instant::now());
        let switches = self.handle.switches().await?;
        let mut tick = json!({
            "switches": switches.len(),
            "switches_connected": switches.iter().filter(|switch| switch.is_connected).count(),
            "hosts": switches.iter().map(|switch| switch.hosts).sum::<usize>(),
            "policies": policies.len(),
            "policies_that_do_not_add_up": policies.iter().filter(|one| !one.adds_up).count(),
        });
        let total = serde_json::to_value(self.series.total()).unwrap_or_default();
        if let (Some(tick), Value::Object(total)) = (tick.as_object_mut(), total) {
            tick.extend(total);
        }
        self.handle.journal().publish(crate::journal::Kind::Tick, tick);
        Ok(())
    }
}

/// Publishes totals every second while anyone listens.
async fn tick(api: Api) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        api.record_left_out().await;
        let is_wanted = api.handle.journal().listener_count() > 0 || api.series.is_wanted();
        if !is_wanted {
            continue;
        }
        // A follower, or a stopping controller, has none.
        let _ = api.tick().await;
    }
}

/// A route.
struct Route {
    #[cfg_attr(not(test), expect(dead_code, reason = "what the document is compared with"))]
    method: Method,
    /// Path after `/api/v1`.
    path: &'static str,
    /// Required role; `None` for no authentication.
    role: Option<Role>,
    /// Whether it takes a query, which its handler checks.
    has_query: bool,
    handler: MethodRouter<Api>,
}

impl Route {
    fn new(
        method: Method,
        path: &'static str,
        role: impl Into<Option<Role>>,
        handler: MethodRouter<Api>,
    ) -> Self {
        Self { method, path, role: role.into(), has_query: false, handler }
    }

    fn with_query(self) -> Self {
        Self { has_query: true, ..self }
    }
}

/// All routes.
fn routes() -> Vec<Route> {
    use Role::{Admin, Operator, Viewer};
    let read = |path, handler| Route::new(Method::GET, path, Viewer, handler);
    let admin = |path, handler| Route::new(Method::GET, path, Admin, handler);
    vec![
        Route::new(Method::GET, "/openapi.json", None, get(document)),
        Route::new(Method::POST, "/session", None, post(session::sign_in)),
        Route::new(Method::DELETE, "/session", None, delete(session::sign_out)),
        read("/me", get(session::me)),
        read("/config", get(session::config)),
        read("/cluster", get(session::cluster)),
        read("/topology", get(topology::topology)).with_query(),
        read("/switches", get(network::switches)).with_query(),
        read("/switches/{id}", get(network::one_switch)),
        read("/switches/{id}/ports", get(details::ports)).with_query(),
        read("/switches/{id}/rules", get(details::rules)).with_query(),
        read("/switches/{id}/groups", get(details::groups)).with_query(),
        read("/hosts", get(network::hosts)).with_query(),
        Route::new(Method::POST, "/filters/check", Viewer, post(filters::check)),
        read("/policies", get(policies::list)).with_query(),
        Route::new(Method::POST, "/policies", Operator, post(policies::add)).with_query(),
        read("/policies/{name}", get(policies::one)),
        Route::new(Method::PUT, "/policies/{name}", Operator, put(policies::replace)).with_query(),
        Route::new(Method::DELETE, "/policies/{name}", Operator, delete(policies::delete))
            .with_query(),
        read("/policies/{name}/series", get(policies::series)),
        Route::new(Method::GET, "/policies/{name}/packets", Operator, get(packets::packets))
            .with_query(),
        read("/events", get(live::events)),
        read("/events/log", get(live::log)).with_query(),
        admin("/audit", get(log::list)).with_query(),
        admin("/audit/export", get(log::export)),
    ]
}

fn router(api: Api) -> Router {
    let guard = |role| middleware::from_fn_with_state((api.clone(), role), authorize);
    let metrics = get(metrics::metrics).layer(guard(Role::Viewer));
    let mut router = Router::new().route("/metrics", metrics);
    for Route { path, role, has_query, handler, .. } in routes() {
        let handler = match has_query {
            true => handler,
            false => handler.layer(middleware::from_fn(without_query)),
        };
        let handler = match role {
            Some(role) => handler.layer(guard(role)),
            None => handler.layer(middleware::from_fn(of_our_pages)),
        };
        router = router.route(&format!("{BASE}{path}"), handler);
    }
    router
        .merge(crate::page::routes())
        .route("/healthz", get(async || "ok\n"))
        .fallback(async || Refusal::new(StatusCode::NOT_FOUND, "unknown-path", UNKNOWN_PATH))
        .method_not_allowed_fallback(async || {
            let message = "this path does not support this method; see /api/v1/openapi.json";
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "unknown-method", message)
        })
        .layer(DefaultBodyLimit::max(MAX_BODY_LEN))
        .layer(middleware::from_fn(in_time))
        .with_state(api)
}

/// Authorizes the request, and passes the caller on to the handler.
async fn authorize(
    State((api, role)): State<(Api, Role)>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let admitted = api.gate.admit((peer.address, peer.user), request.method(), request.headers());
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err(rejection) => return api.reject(peer.address, rejection).await.into_response(),
    };
    peer.place.keep_for(&admitted.caller);
    if admitted.caller.role < role {
        let Caller { name, role: has, .. } = &admitted.caller;
        let remedy = api.gate.remedy();
        let message =
            format!("this needs the role {role}, and {name} has the role {has}; {remedy}");
        let refusal = Refusal::new(StatusCode::FORBIDDEN, "role-too-low", message);
        let what = format!("{} {}: {}", request.method(), request.uri().path(), refusal.message);
        if api.gate.refusals.handle_role(peer.address.ip(), Instant::now()) {
            let draft = Draft::new(&admitted.caller, What::RoleRefused, refused(&what));
            api.handle.record(draft).await;
        }
        return refusal.into_response();
    }
    request.extensions_mut().insert(admitted);
    next.run(request).await
}

/// Rejects a query on routes without one: an ignored filter would make all items look like the
/// matching ones.
async fn without_query(request: Request, next: Next) -> Response {
    let query = request.uri().query().filter(|query| !query.is_empty());
    let Some(query) = query else { return next.run(request).await };
    let field = query.split(['=', '&']).next().unwrap_or_default();
    let message = format!("{field}: this path has no query parameters; leave it out");
    Refusal::malformed(message).about(field).into_response()
}

/// Rejects requests from pages of other sites on public routes.
async fn of_our_pages(request: Request, next: Next) -> Response {
    match access::check_site(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(rejection) => rejection.refusal.into_response(),
    }
}

/// Ends requests that take too long, including slow bodies; disables caching.
async fn in_time(request: Request, next: Next) -> Response {
    let answered = tokio::time::timeout(ANSWER_TIMEOUT, next.run(request)).await;
    let mut response = answered.unwrap_or_else(|_| {
        let message = "no answer within thirty seconds; try again";
        Refusal::new(StatusCode::REQUEST_TIMEOUT, "timeout", message).into_response()
    });
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// The OpenAPI document.
async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI)
}

/// The caller, for handlers.
struct Asking(Admitted);

impl<S: Send + Sync> FromRequestParts<S> for Asking {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let admitted = parts.extensions.get::<Admitted>().cloned();
        admitted.map(Self).ok_or_else(|| {
            let message = "the request is not authenticated";
            Refusal::new(StatusCode::UNAUTHORIZED, "no-token", message)
        })
    }
}

/// Prefix of all paths; a second version would have another.
const BASE: &str = "/api/v1";
const MAX_BODY_LEN: usize = 64 << 10;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum age of counters that are used without a new request.
const FRESH: Duration = Duration::from_millis(250);
/// Maximum age of port counters that are used without a new request.
const LOADS_FRESH: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_secs(1);
const UNKNOWN_PATH: &str = "there is no such path; see /api/v1/openapi.json";
/// <https://spec.openapis.org/oas/v3.1.0>
const OPENAPI: &str = include_str!("rest/openapi.json");

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tapswitch_control::TapPolicy;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::cluster::{Leader, Standing};
    use crate::{Config, Server};

    /// A connection with a request whose response has begun.
    async fn ask(server: SocketAddr, request: &str, body: &str) -> (String, TcpStream) {
        let mut stream = TcpStream::connect(server).await.unwrap();
        let len = body.len();
        let head = format!(
            "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {len}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        (String::from_utf8_lossy(&status[9..]).into_owned(), stream)
    }

    #[tokio::test]
    async fn who_does_not_lead_any_more_tells_nothing_as_it_happens() {
        let any = "127.0.0.1:0".parse().unwrap();
        let config = Config {
            listen: vec![any],
            policies: vec![TapPolicy::new("web", "controller".parse().unwrap())],
            rest: Some(RestConfig { listen: any, ..RestConfig::default() }),
            ..Config::default()
        };
        let server = Server::bind(config).await.unwrap();
        let (standing, address) = (server.standing(), server.rest_addr().unwrap());
        let serving = tokio::spawn(server.run(std::future::pending()));
        let paths = ["/events", "/policies/web/packets", "/policies/web/series", "/events/log"];
        let get = async |path: &str| ask(address, &format!("GET /api/v1{path}"), "").await;
        let mut streams = Vec::new();
        for path in paths {
            let (status, stream) = get(path).await;
            assert_eq!(status, "200", "{path}");
            streams.push(stream);
        }
        let leader = Leader { id: "b".to_owned(), rest: None, openflow: None, generation: 7 };
        let leader = Some(leader);
        standing.send_replace(Standing::Follower { leader, remembers: true });
        for mut stream in streams {
            let mut rest = Vec::new();
            let end = stream.read_to_end(&mut rest);
            let ended = tokio::time::timeout(Duration::from_secs(60), end).await;
            assert!(ended.is_ok(), "{}", String::from_utf8_lossy(&rest));
        }
        for path in paths {
            assert_eq!(get(path).await.0, "421", "{path}");
        }
        let check = "POST /api/v1/filters/check";
        assert_eq!(ask(address, check, r#"{"filter":"tcp"}"#).await.0, "421");
        serving.abort();
    }

    #[test]
    fn the_document_and_the_table_of_routes_are_of_one_mind() {
        let key = |method: &str, path: &str| format!("{} {path}", method.to_lowercase());
        let terms = |route: &Route| (route.role.map(|role| role.to_string()), route.has_query);
        let ours: BTreeMap<_, _> = routes()
            .into_iter()
            .map(|route| (key(route.method.as_str(), route.path), terms(&route)))
            .collect();
        let document: Value = serde_json::from_str(OPENAPI).unwrap();
        let mut told = BTreeMap::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let role = operation["x-role"].as_str().map(str::to_owned);
                let parameters = operation["parameters"].as_array();
                let mut parameters = parameters.into_iter().flatten();
                let has_query = parameters.any(|parameter| parameter["in"] == "query");
                told.insert(key(method, path), (role, has_query));
            }
        }
        assert_eq!(ours, told);
    }
}
