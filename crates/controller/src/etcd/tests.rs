//! Responses of the gateway, as sent by etcd 3.4.

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::message::{Compare, KeepAliveResponse, Op, RangeResponse, TxnResponse};
use super::*;
use crate::EtcdConfig;

#[test]
fn requests_are_as_the_gateway_wants_them() {
    let key = || "/k".to_owned();
    let compare = serde_json::to_value(Compare::Created { key: key(), revision: 7 }).unwrap();
    let expected = json!({
        "result": "EQUAL", "target": "CREATE", "key": "L2s=", "create_revision": "7"
    });
    assert_eq!(compare, expected);
    let put = Op::Put { key: key(), value: "v".to_owned(), lease: Some(i64::MAX) };
    let expected = json!({
        "request_put": { "key": "L2s=", "value": "dg==", "lease": "9223372036854775807" }
    });
    assert_eq!(serde_json::to_value(put).unwrap(), expected);
}

#[test]
fn what_is_left_out_is_zero() {
    let refused: TxnResponse = read_answer(
        StatusCode::OK,
        br#"{"header":{"revision":"9","raft_term":"2"},"responses":[{"response_range":
            {"kvs":[{"key":"L2s=","create_revision":"3","mod_revision":"4","value":"dg=="}],
            "count":"1"}},{"response_range":{}}]}"#,
    )
    .unwrap();
    assert!(!refused.succeeded);
    assert_eq!(refused.revision(), 9);
    let found = refused.found(0).unwrap();
    assert_eq!((found.key.as_str(), found.value.as_str()), ("/k", "v"));
    assert_eq!((found.create_revision, found.mod_revision, found.lease), (3, 4, 0));
    assert_eq!((refused.found(1), refused.found(2)), (None, None));
    let empty: RangeResponse = read_answer(StatusCode::OK, b"{}").unwrap();
    assert_eq!((empty.kvs.len(), empty.count), (0, 0));
    let ended: KeepAliveResponse =
        read_answer(StatusCode::OK, br#"{"result":{"header":{},"ID":"5"}}"#).unwrap();
    assert_eq!((ended.result.id, ended.result.ttl), (5, 0));
}

#[test]
fn an_error_says_whether_another_member_may_know_better() {
    let read = |body: &str| {
        read_answer::<Value>(StatusCode::SERVICE_UNAVAILABLE, body.as_bytes()).unwrap_err()
    };
    let no_leader = read(r#"{"error":"e","message":"etcdserver: no leader","code":14}"#);
    assert_eq!(no_leader, EtcdError::Unreachable("etcdserver: no leader".to_owned()));
    let no_lease = read(r#"{"message":"etcdserver: requested lease not found","code":5}"#);
    assert!(matches!(no_lease, EtcdError::NotFound(_)));
    assert!(matches!(read("<html>"), EtcdError::Refused(text) if text.contains("503")));
}

#[test]
fn who_is_not_known_signs_in_and_who_may_not_is_told_what_mends_it() {
    let read = |code: u32, text: &str| {
        let body = format!(r#"{{"message":"etcdserver: {text}","code":{code}}}"#);
        read_answer::<Value>(StatusCode::BAD_REQUEST, body.as_bytes()).unwrap_err()
    };
    for (code, text) in [
        (16, "invalid auth token"),
        (3, "user name is empty"),
        (3, "revision of auth store is old"),
    ] {
        let error = read(code, text);
        assert!(matches!(error, EtcdError::SignedOut(_)), "{error:?}");
        assert!(error.to_string().contains("--store-login"), "{error}");
    }
    assert!(matches!(read(9, "authentication is not enabled"), EtcdError::NoUsers(_)));
    let told = read(7, "permission denied").to_string();
    assert!(told.contains("grant-permission"), "{told}");
    let told = read(3, "authentication failed, invalid user ID or password").to_string();
    assert!(told.contains("the file of --store-login"), "{told}");
    let body = b"Client sent an HTTP request to an HTTPS server.\n";
    let told = read_answer::<Value>(StatusCode::BAD_REQUEST, body).unwrap_err().to_string();
    assert!(told.contains("use etcds://"), "{told}");
    let body = b"CommonName of client sending a request against gateway will be ignored";
    let told = read_answer::<Value>(StatusCode::BAD_REQUEST, body).unwrap_err().to_string();
    assert!(told.contains("must have no CommonName"), "{told}");
}

#[tokio::test]
async fn when_one_member_is_gone_the_next_one_is_asked() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let members = [&gone, &there].map(|member| member.local_addr().unwrap().to_string());
    drop(gone);
    let config: EtcdConfig = format!("etcd://{}", members.join(",")).parse().unwrap();
    let mut client = Client::new(Way::open(&config).unwrap(), Duration::from_secs(60));
    let error = client.range("/k", None, 1).await.unwrap_err();
    assert!(matches!(&error, EtcdError::Unreachable(text) if text.contains(&members[0])));
    let server = tokio::spawn(async move {
        let (stream, _) = there.accept().await.unwrap();
        let service = hyper::service::service_fn(async |request: Request<_>| {
            assert_eq!(request.uri().path(), "/v3/kv/range");
            let body = Full::new(Bytes::from_static(b"{\"count\":\"3\"}"));
            Ok::<_, std::convert::Infallible>(hyper::Response::new(body))
        });
        let connection = hyper::server::conn::http1::Builder::new();
        connection.serve_connection(TokioIo::new(stream), service).await.unwrap();
    });
    assert_eq!(client.range("/k", None, 1).await.unwrap().count, 3);
    assert_eq!(client.range("/k", None, 1).await.unwrap().count, 3, "on the same connection");
    drop(client);
    server.await.unwrap();
}

#[tokio::test]
async fn whoever_wants_tls_is_known_by_each_way_to_say_no() {
    // TLS's response to plain text: fatal alert unexpected_message (RFC 8446, 6.2).
    const ALERT: [u8; 7] = [0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x0a];
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = format!("etcd://{}", listener.local_addr().unwrap());
    let way = Way::open(&config.parse().unwrap()).unwrap();
    let mut client = Client::new(way, Duration::from_secs(60));
    for (reads, answer) in [(true, &[][..]), (false, &[]), (true, &ALERT)] {
        let says_no = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.readable().await.unwrap();
            // Closing a connection with unread data resets it.
            if reads {
                assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
            }
            stream.write_all(answer).await.unwrap();
        };
        let ((), error) = tokio::join!(says_no, client.range("/k", None, 1));
        let told = error.unwrap_err().to_string();
        assert!(told.contains("if it requires TLS, use etcds://"), "{reads} {answer:?}: {told}");
    }
}
