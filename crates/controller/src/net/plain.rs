//! Who speaks plain HTTP where TLS is spoken is told so by HTTP: by what TLS would say they would
//! only know that something is wrong.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Whether plain HTTP comes, as far as can be told until then, when a handshake must be done: the
/// first byte of a request is a letter, that of a handshake is not (RFC 8446, section 5.1).
pub(super) async fn is_plain(stream: &TcpStream, deadline: Instant) -> bool {
    let mut first = [0];
    let peeked = tokio::time::timeout_at(deadline, stream.peek(&mut first)).await;
    matches!(peeked, Ok(Ok(1))) && first[0].is_ascii_alphabetic()
}

/// Says that TLS is to be spoken, and hangs up.
pub(super) async fn refuse(stream: TcpStream) {
    // Whoever does not read or does not end is not waited for.
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
    // What is not read when a connection is closed resets it, and the answer with it.
    let (mut unread, mut len) = ([0; 1024], 0);
    while len < MAX_UNREAD {
        match stream.read(&mut unread).await? {
            0 => break,
            more => len += more,
        }
    }
    Ok(())
}

/// As all refusals are.
const BODY: &str = concat!(
    r#"{"error":{"code":"not-tls","message":"this port speaks HTTPS: ask https:// instead of "#,
    r#"http://","field":null}}"#
);
const PATIENCE: Duration = Duration::from_secs(1);
const MAX_UNREAD: usize = 64 << 10;
