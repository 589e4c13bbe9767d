//! Answers plain HTTP on a TLS port by HTTP: a TLS alert would tell the client only that something
//! is wrong.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Whether the client speaks plain HTTP: a request starts with a letter, a handshake does not (RFC
/// 8446 §5.1). False if nothing arrives before the deadline of the handshake.
pub(super) async fn is_plain(stream: &TcpStream, deadline: Instant) -> bool {
    let mut first = [0];
    let peeked = tokio::time::timeout_at(deadline, stream.peek(&mut first)).await;
    matches!(peeked, Ok(Ok(1))) && first[0].is_ascii_alphabetic()
}

/// Answers that TLS is required, and closes the connection.
pub(super) async fn refuse(stream: TcpStream) {
    // A client that neither reads nor closes is not waited for.
    let _ = tokio::time::timeout(PATIENCE, answer(stream)).await;
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        BODY.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(BODY.as_bytes()).await?;
    stream.shutdown().await?;
    // Unread input at close would cause a reset, which discards the response.
    let (mut unread, mut len) = ([0; 1024], 0);
    while len < MAX_UNREAD {
        match stream.read(&mut unread).await? {
            0 => break,
            more => len += more,
        }
    }
    Ok(())
}

/// In the form of all refusals.
const BODY: &str = concat!(
    r#"{"error":{"code":"not-tls","message":"this port speaks HTTPS: ask https:// instead of "#,
    r#"http://","field":null}}"#
);
const PATIENCE: Duration = Duration::from_secs(1);
const MAX_UNREAD: usize = 64 << 10;
