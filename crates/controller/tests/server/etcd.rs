//! A member of etcd of the test's own.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tapswitch_controller::StoreConfig;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::rest::exchange;
use crate::running::until;

/// Stopped on drop.
pub(crate) struct Etcd {
    process: Child,
    address: String,
    _directory: TempDir,
}

impl Etcd {
    /// Starts it and waits until it answers; without the program the test is skipped.
    pub(crate) async fn start() -> Option<Self> {
        if Command::new("etcd").arg("--version").output().is_err() {
            println!("SKIP: etcd is not installed");
            return None;
        }
        loop {
            let mut etcd = Self::spawn();
            let mut has_ended = false;
            until(async || {
                has_ended = etcd.process.try_wait().unwrap().is_some();
                has_ended || etcd.answers().await
            })
            .await;
            // Otherwise another program has taken one of the ports.
            if !has_ended {
                return Some(etcd);
            }
        }
    }

    fn spawn() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [address, peer] = ports.map(|port| port.local_addr().unwrap().to_string());
        let [client_url, peer_url] = [&address, &peer].map(|address| format!("http://{address}"));
        let process = Command::new("etcd")
            .args(["--name", "one", "--data-dir"])
            .arg(directory.path().join("data"))
            .args(["--initial-cluster", &format!("one={peer_url}")])
            .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, address, _directory: directory }
    }

    /// The store of a controller in it.
    pub(crate) fn store(&self) -> StoreConfig {
        StoreConfig::Etcd(format!("etcd://{}/t", self.address).parse().unwrap())
    }

    /// Number of keys that begin with this text.
    pub(crate) async fn count(&self, prefix: &str) -> u64 {
        let end = format!("{prefix}\u{7f}");
        let [key, range_end] = [prefix, &end].map(|text| STANDARD.encode(text));
        let ask = json!({ "key": key, "range_end": range_end, "count_only": true });
        let stream = TcpStream::connect(&self.address).await.unwrap();
        let (host, request) = (self.address.parse().unwrap(), ("POST", "/v3/kv/range"));
        let answer = exchange(stream, host, request, &[], ask.to_string().into_bytes()).await;
        // Zero is left out.
        answer.json()["count"].as_str().map_or(0, |count| count.parse().unwrap())
    }

    async fn answers(&self) -> bool {
        let health = async || {
            let mut stream = TcpStream::connect(&self.address).await?;
            stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.map(|_| answer)
        };
        health().await.is_ok_and(|answer| answer.contains("\"true\""))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
