//! Packets of a policy whose copies go to the controller: as a stream, or the last ones as a file.
//! A client that reconnects with the id of the last packet gets the later ones.

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, StreamExt};
use serde::Deserialize;
use serde_json::json;
use tapswitch_control::{MonitorSpec, PolicyReport, TapPolicy};
use tapswitch_pcapng::Packet;
use tapswitch_wire::{EtherType, FlowKey, ip_proto, parse};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::Interval;

use super::access::Admitted;
use super::ending::{Ending, Source, recheck};
use super::error::Refusal;
use super::lists::Asked;
use super::live::{KEEP_ALIVE, last_seen};
use super::policies::Named;
use super::{Api, Asking};
use crate::Caller;
use crate::audit::{Draft, What};
use crate::cluster::TermId;
use crate::copies::{CopyId, News, Shown};
use crate::store::StoreError;

/// Query for packets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PacketsQuery {
    download: Option<Format>,
}

/// File format.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Format {
    Pcapng,
}

pub(super) async fn packets(
    State(api): State<Api>,
    Asking(admitted): Asking,
    Named(name): Named,
    Asked(query): Asked<PacketsQuery>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let term = api.handle.term();
    let seen = last_seen::<CopyId>(&headers, "the id of a packet of such a stream")?;
    // Subscribed first: otherwise the end of the policy right after the lookup would be missed.
    let (mut last, receiver) = api.handle.journal().copies().watch();
    let PolicyReport { number, policy, .. } = api.handle.policy(&name).await?;
    check_shown(&policy)?;
    api.note_look(&admitted.caller, &policy, query.download).await?;
    last.retain(|shown| shown.is_of(number));
    if let Some(Format::Pcapng) = query.download {
        return Ok(file(&last).into_response());
    }
    // An id of another run is older than all packets of this one.
    let is_news = move |shown: &Arc<Shown>| seen.is_none_or(|seen| shown.id.is_after(seen));
    let first = stream::iter(last.into_iter().filter(is_news).map(|shown| event(&shown)));
    let recheck = recheck();
    let watcher = Watcher { api, admitted, policy: (name, number), receiver, term, recheck };
    let stream = first.chain(watcher.events()).map(Ok::<_, Infallible>);
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// Fails unless copies go to the controller: without packets a client would assume that there is no
/// traffic.
fn check_shown(policy: &TapPolicy) -> Result<(), Refusal> {
    if policy.monitor.iter().any(|monitor| *monitor == MonitorSpec::Controller) {
        return Ok(());
    }
    let message = format!(
        "policy {} copies only to other monitors; replace it with one that has the monitor \
         controller in addition",
        policy.name
    );
    Err(Refusal::new(StatusCode::CONFLICT, "not-watched", message).about("monitor"))
}

impl Api {
    /// Records who watches packets, before any are shown: each file, and each stream unless it has
    /// just reconnected. If the record cannot be written, nothing is shown.
    async fn note_look(
        &self,
        caller: &Caller,
        policy: &TapPolicy,
        file: Option<Format>,
    ) -> Result<(), StoreError> {
        let record =
            |what| self.handle.try_record(Draft::new(caller, what, "accepted").about(policy));
        match file {
            Some(Format::Pcapng) => record(What::PacketsDownload).await,
            None => {
                let record = record(What::PacketsWatch);
                self.looks.begin((caller, policy), Instant::now(), record).await
            }
        }
    }
}

/// A client watching the packets of a policy.
struct Watcher {
    api: Api,
    admitted: Admitted,
    /// Name and number of the policy.
    policy: (String, u64),
    receiver: broadcast::Receiver<News>,
    /// The controller's term at its start.
    term: TermId,
    recheck: Interval,
}

impl Source for Watcher {
    /// A slow client misses packets.
    async fn next(&mut self) -> Result<Event, Ending> {
        loop {
            let news = tokio::select! {
                news = self.receiver.recv() => Some(news),
                ending = self.api.ended(self.term) => return Err(ending),
                _ = self.recheck.tick() => None,
            };
            self.api.gate.check(&self.admitted)?;
            match news {
                Some(Ok(News::Copy(shown))) if shown.is_of(self.policy.1) => {
                    return Ok(event(&shown));
                }
                Some(Ok(News::Gone(number))) if number == self.policy.1 => {
                    return Err(Ending::PolicyGone);
                }
                // The end of the policy may be among what was missed.
                Some(Err(RecvError::Lagged(_))) if !self.is_there().await => {
                    return Err(Ending::PolicyGone);
                }
                Some(Err(RecvError::Closed)) => return Err(Ending::Stopped),
                _ => {}
            }
        }
    }
}

impl Watcher {
    async fn is_there(&self) -> bool {
        let (name, number) = &self.policy;
        let known = self.api.handle.known_policy(name).await;
        known.is_ok_and(|report| report.number == *number)
    }
}

fn event(shown: &Shown) -> Event {
    let Shown { copy, at, id, .. } = shown;
    let hex: String = copy.start.iter().map(|byte| format!("{byte:02x}")).collect();
    let data = json!({
        "at": at,
        "len": copy.len,
        "switch": format!("{:#x}", copy.switch.0),
        "port": copy.port,
        "summary": summary(&copy.start),
        "bytes_hex": hex,
    });
    Event::default().event("packet").id(id.to_string()).data(data.to_string())
}

/// A packet in one line: endpoints and protocol, as far as its start contains them.
fn summary(start: &[u8]) -> String {
    let Ok(parsed) = parse(start) else { return "cut short".to_owned() };
    let key = parsed.key;
    let tag = key.outer_tag().map_or_else(String::new, |tag| format!("vlan {} ", tag.vid()));
    let text = match key.eth_type() {
        EtherType::IPV4 | EtherType::IPV6 => ip_summary(&key),
        EtherType::ARP => format!("{} > {} ARP", v4(key.ip_src), v4(key.ip_dst)),
        other => format!("{} > {} type {:#06x}", key.eth_src, key.eth_dst, other.0),
    };
    tag + &text
}

fn ip_summary(key: &FlowKey) -> String {
    let (src, dst) = match key.eth_type() {
        EtherType::IPV4 => (v4(key.ip_src).to_string(), v4(key.ip_dst).to_string()),
        _ => {
            let [src, dst] = [key.ip_src, key.ip_dst].map(Ipv6Addr::from);
            (format!("[{src}]"), format!("[{dst}]"))
        }
    };
    let [from, to] = [key.l4_src, key.l4_dst].map(u16::from_be_bytes);
    match key.ip_proto {
        ip_proto::TCP => format!("{src}:{from} > {dst}:{to} TCP"),
        ip_proto::UDP => format!("{src}:{from} > {dst}:{to} UDP"),
        ip_proto::ICMP => format!("{src} > {dst} ICMP type {from}"),
        ip_proto::ICMPV6 => format!("{src} > {dst} ICMPv6 type {from}"),
        proto => format!("{src} > {dst} protocol {proto}"),
    }
}

fn v4(address: [u8; 16]) -> Ipv4Addr {
    let [a, b, c, d, ..] = address;
    Ipv4Addr::new(a, b, c, d)
}

/// The packets as pcapng, as far as they were captured.
fn file(last: &[Arc<Shown>]) -> impl IntoResponse + use<> {
    let mut bytes = Vec::new();
    let application = concat!("tapswitch ", env!("CARGO_PKG_VERSION"));
    tapswitch_pcapng::begin(&mut bytes, application, "controller", u32::from(u16::MAX));
    for Shown { copy, at_ns, .. } in last.iter().map(Arc::as_ref) {
        let (kept, whole) = (copy.start.len(), usize::from(copy.len));
        let mut packet = Packet::begin(&mut bytes, *at_ns, kept, whole.max(kept));
        packet.push(&copy.start);
        packet.end();
    }
    let name = "attachment; filename=\"packets.pcapng\"";
    ([(CONTENT_TYPE, "application/x-pcapng"), (CONTENT_DISPOSITION, name)], bytes)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::{Config, RestConfig, Server};

    /// Requests the packets of the policy; returns the refusal.
    async fn ask(server: std::net::SocketAddr, query: &str) -> String {
        let mut stream = TcpStream::connect(server).await.unwrap();
        let path = format!("/api/v1/policies/web/packets{query}");
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut status = [0; 13];
        stream.read_exact(&mut status).await.unwrap();
        // A request that is not refused may never end.
        assert_eq!(status, *b"HTTP/1.1 503 ", "{query}");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn nobody_sees_packets_without_a_record() {
        let any = "127.0.0.1:0".parse().unwrap();
        let config = Config {
            listen: vec![any],
            policies: vec![TapPolicy::new("web", "controller".parse().unwrap())],
            rest: Some(RestConfig { listen: any, ..RestConfig::default() }),
            ..Config::default()
        };
        let mut server = Server::bind(config).await.unwrap();
        server.lose_store();
        let address = server.rest_addr().unwrap();
        let serving = tokio::spawn(server.run(std::future::pending()));
        for query in ["", "?download=pcapng"] {
            let answer = ask(address, query).await;
            assert!(answer.contains(r#""code":"store-unavailable""#), "{query}: {answer}");
        }
        serving.abort();
    }

    #[test]
    fn a_packet_is_told_in_a_line() {
        let mut frame = [[2; 6], [4; 6]].concat();
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x9c, 0x40, 0, 80]);
        frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        assert_eq!(summary(&frame), "10.0.0.1:40000 > 10.0.0.2:80 TCP");
        frame.splice(12..12, [0x81, 0, 0, 100]);
        assert_eq!(summary(&frame), "vlan 100 10.0.0.1:40000 > 10.0.0.2:80 TCP");
        assert_eq!(summary(&frame[..9]), "cut short");
    }
}
