//! Passes the bytes of a connection on to the leader, and back.
//!
//! The leader and the switch make a new handshake with each other, but for the hello: transaction
//! ids, probes and errors are then theirs alone. What the switch sent before its features reply
//! belongs to the former connection and is not passed on, as the leader asks for everything
//! afterwards. A relay never becomes an ordinary connection again: when it ends, the switch is
//! disconnected and connects anew.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tapswitch_openflow::{Body, Header, Hello, Message, MessageType, Relayed, frame_len};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

use super::{Relay, Stream};

/// Relays until one end is closed, or the relay must end; returns why. `unread` are bytes of the
/// switch that were received already.
pub(crate) async fn relay<S: AsyncRead + AsyncWrite>(
    (reader, writer): (ReadHalf<S>, WriteHalf<S>),
    unread: Vec<u8>,
    relay: Relay,
    is_heard: Arc<AtomicBool>,
) -> String {
    let Relay { leader, by, end } = relay;
    let (from_leader, mut to_leader) = tokio::io::split(leader);
    if let Err(error) = to_leader.write_all(&greeting(by)).await {
        return format!("the leader: {error}");
    }
    let ended = tokio::select! {
        ended = pass_up(reader, unread, to_leader, is_heard) => ended,
        ended = pass_down(from_leader, writer) => ended,
        _ = end => Ok("it is relayed to the leader no longer"),
    };
    ended.map_or_else(|error| format!("relaying to the leader ended: {error}"), str::to_owned)
}

/// The hello, and whose connection this is.
fn greeting(by: String) -> Vec<u8> {
    let mut bytes = Vec::new();
    for body in [Body::Hello(Hello::new()), Body::Experimenter(Relayed { by }.experimenter())] {
        // Only longer ones can fail.
        let _ = Message { xid: 0, body }.encode(&mut bytes);
    }
    bytes
}

/// From the switch to the leader.
async fn pass_up(
    mut reader: ReadHalf<impl AsyncRead>,
    unread: Vec<u8>,
    mut to_leader: WriteHalf<Box<dyn Stream>>,
    is_heard: Arc<AtomicBool>,
) -> io::Result<&'static str> {
    let mut buf = unread;
    skip_until(&mut buf, &mut reader, |kind| kind == MessageType::FeaturesReply as u8).await?;
    loop {
        to_leader.write_all(&buf).await?;
        // TLS buffers what is written.
        to_leader.flush().await?;
        buf.clear();
        if read_more(&mut reader, &mut buf).await? == 0 {
            return Ok("the switch closed the connection");
        }
        is_heard.store(true, Ordering::Relaxed);
    }
}

/// From the leader to the switch, which has had a hello.
async fn pass_down(
    mut from_leader: ReadHalf<Box<dyn Stream>>,
    mut writer: WriteHalf<impl AsyncWrite>,
) -> io::Result<&'static str> {
    let mut buf = Vec::new();
    skip_until(&mut buf, &mut from_leader, |kind| kind != MessageType::Hello as u8).await?;
    loop {
        writer.write_all(&buf).await?;
        writer.flush().await?;
        buf.clear();
        if read_more(&mut from_leader, &mut buf).await? == 0 {
            return Ok("the leader closed the relayed connection");
        }
    }
}

/// Reads and drops whole messages, up to the first one of a wanted type.
async fn skip_until(
    buf: &mut Vec<u8>,
    reader: &mut (impl AsyncRead + Unpin),
    is_wanted: impl Fn(u8) -> bool,
) -> io::Result<()> {
    loop {
        while let Some(len) = whole(buf)? {
            if Header::peek(buf).is_some_and(|header| is_wanted(header.message_type)) {
                return Ok(());
            }
            buf.drain(..len);
        }
        if read_more(reader, buf).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Length of the first message, if it is complete.
fn whole(buf: &[u8]) -> io::Result<Option<usize>> {
    let len = frame_len(buf).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(len.filter(|len| *len <= buf.len()))
}

async fn read_more(reader: &mut (impl AsyncRead + Unpin), buf: &mut Vec<u8>) -> io::Result<usize> {
    let read = reader.take(READ_LEN).read_buf(buf).await;
    // TLS ended without close_notify.
    read.or_else(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Ok(0),
        _ => Err(error),
    })
}

/// Bytes to read at once.
const READ_LEN: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;

    use super::*;

    const BARRIER: [u8; 8] = [4, 20, 0, 8, 0, 0, 0, 1];
    const PORT_STATUS: [u8; 8] = [4, 12, 0, 8, 0, 0, 0, 2];
    const FEATURES: [u8; 9] = [4, 6, 0, 9, 0, 0, 0, 3, 7];
    const HELLO: [u8; 8] = [4, 0, 0, 8, 0, 0, 0, 4];

    struct Relayed {
        switch: DuplexStream,
        leader: DuplexStream,
        end: oneshot::Sender<()>,
        is_heard: Arc<AtomicBool>,
        relaying: JoinHandle<String>,
    }

    /// A relay of which the greeting was read.
    async fn relayed(unread: &[u8]) -> Relayed {
        let (switch, near) = duplex(1 << 16);
        let (mut leader, far) = duplex(1 << 16);
        let (end, ended) = oneshot::channel();
        let order = Relay { leader: Box::new(far), by: "me".to_owned(), end: ended };
        let is_heard = Arc::<AtomicBool>::default();
        let stream = tokio::io::split(near);
        let relaying = tokio::spawn(relay(stream, unread.to_vec(), order, Arc::clone(&is_heard)));
        let mut greeted = vec![0; greeting("me".to_owned()).len()];
        leader.read_exact(&mut greeted).await.unwrap();
        assert_eq!(greeted, greeting("me".to_owned()));
        Relayed { switch, leader, end, is_heard, relaying }
    }

    async fn read<const LEN: usize>(stream: &mut DuplexStream) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        stream.read_exact(&mut bytes).await.unwrap();
        bytes
    }

    #[tokio::test]
    async fn the_leader_gets_what_follows_from_the_features_reply_on() {
        let stream = [&BARRIER[..], &PORT_STATUS, &FEATURES, &BARRIER].concat();
        for already in 0..=stream.len() {
            let mut it = relayed(&stream[..already]).await;
            for byte in &stream[already..] {
                it.switch.write_all(&[*byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
            assert_eq!(read(&mut it.leader).await, FEATURES);
            assert_eq!(read(&mut it.leader).await, BARRIER);
        }
    }

    #[tokio::test]
    async fn the_switch_gets_all_but_the_hello() {
        let mut it = relayed(&FEATURES).await;
        it.leader.write_all(&[&HELLO[..], &BARRIER].concat()).await.unwrap();
        assert_eq!(read(&mut it.switch).await, BARRIER);
        // Even another hello, which would be a fault.
        it.leader.write_all(&[&HELLO[..3], &HELLO[3..], &BARRIER].concat()).await.unwrap();
        assert_eq!(read(&mut it.switch).await, HELLO);
        assert!(!it.is_heard.load(Ordering::Relaxed));
        it.switch.write_all(&BARRIER).await.unwrap();
        assert_eq!(read(&mut it.leader).await, FEATURES);
        assert_eq!(read(&mut it.leader).await, BARRIER);
        assert!(it.is_heard.load(Ordering::Relaxed), "a second connection finds it alive");
    }

    #[tokio::test]
    async fn it_ends_with_either_end_and_when_it_must_and_says_why() {
        let it = relayed(&FEATURES).await;
        drop(it.switch);
        assert_eq!(it.relaying.await.unwrap(), "the switch closed the connection");
        let mut it = relayed(&FEATURES).await;
        it.leader.write_all(&[HELLO, BARRIER].concat()).await.unwrap();
        drop(it.leader);
        assert_eq!(it.relaying.await.unwrap(), "the leader closed the relayed connection");
        let it = relayed(&FEATURES).await;
        drop(it.end);
        assert_eq!(it.relaying.await.unwrap(), "it is relayed to the leader no longer");
        let mut it = relayed(&[]).await;
        it.switch.write_all(&[4, 6, 0, 7]).await.unwrap();
        let why = it.relaying.await.unwrap();
        assert!(why.starts_with("relaying to the leader ended: "), "{why}");
    }
}
