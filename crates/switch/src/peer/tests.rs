//! Tests of peers that do not read, and of pending requests.

use std::collections::VecDeque;
use std::time::Duration;

use tapswitch_openflow::{
    Action, BufferId, Match, Oxm, PacketIn, PacketInReason, PacketOut, PortNo, TableId,
};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const HELLO: [u8; 8] = [4, 0, 0, 8, 0, 0, 0, 1];
/// Far longer than the end takes on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn packet_in() -> ToPeer {
    packet_in_of(1, vec![0; 60])
}

/// A packet-in of a frame received on `port`.
fn packet_in_of(port: u32, data: Vec<u8>) -> ToPeer {
    let packet = PacketIn {
        buffer_id: BufferId::NO_BUFFER,
        total_len: 60,
        reason: PacketInReason::ACTION,
        table_id: TableId(0),
        cookie: 0,
        match_fields: Match::new().with(Oxm::InPort(PortNo(port))),
        data,
    };
    ToPeer::PacketIn(packet, None)
}

type News = mpsc::Receiver<(ConnectionId, FromPeer)>;

/// A connection to a stranger, and the server's ends of its channels.
async fn connection() -> ((Peer, TcpStream), TcpStream, Orders, News) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stranger = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let (to_server, news) = mpsc::channel(64);
    let (orders, inbox) = Orders::channel();
    let peer = Peer::new(ConnectionId(1), to_server, inbox, None, Config::default());
    ((peer, stream), stranger, orders, news)
}

#[tokio::test]
async fn packets_for_a_peer_are_bounded_and_the_rest_is_not() {
    let (orders, mut inbox) = Orders::channel();
    for _ in 0..PACKET_IN_QUEUE_LEN {
        assert!(orders.send(packet_in()));
    }
    assert!(!orders.send(packet_in()));
    assert!(orders.send(ToPeer::Reply(1, Body::BarrierReply)), "an answer always fits");
    inbox.recv().await.unwrap();
    assert!(orders.send(packet_in()) && !orders.send(packet_in()));
    drop(inbox);
    assert!(orders.send(ToPeer::Demote), "nobody is there, which is no fault");
}

#[tokio::test]
async fn a_peer_that_does_not_read_the_last_words_is_left() {
    let ((peer, stream), mut stranger, orders, mut news) = connection().await;
    let peer = tokio::spawn(peer.run(stream));
    // More than the sockets buffer, and less than makes the connection busy.
    stranger.write_all(&HELLO).await.unwrap();
    while !matches!(news.recv().await, Some((_, FromPeer::Event(SwitchEvent::Ready)))) {}
    for xid in 0..116 {
        orders.send(ToPeer::Reply(xid, Body::EchoReply(vec![0; 65_000])));
    }
    // An invalid header ends the connection.
    stranger.write_all(&[4, 2, 0, 3, 0, 0, 0, 2]).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, peer).await;
    assert!(ended.expect("the peer is left").unwrap().was_ready, "it was of use");
    let mut was_closed = false;
    while let Some((_, told)) = news.recv().await {
        was_closed |= matches!(told, FromPeer::Event(SwitchEvent::Closed(_)));
    }
    assert!(was_closed);
}

#[tokio::test]
async fn a_reply_that_fits_no_message_does_not_end_the_connection() {
    let ((peer, stream), mut stranger, orders, mut news) = connection().await;
    let peer = tokio::spawn(peer.run(stream));
    stranger.write_all(&HELLO).await.unwrap();
    while !matches!(news.recv().await, Some((_, FromPeer::Event(SwitchEvent::Ready)))) {}
    orders.send(ToPeer::Reply(2, Body::EchoReply(vec![0; 70_000])));
    orders.send(ToPeer::Reply(3, Body::BarrierReply));
    let error = [4, 1, 0, 12, 0, 0, 0, 2, 0, 1, 0, 13];
    let expected = [&error[..], &[4, 21, 0, 8, 0, 0, 0, 3]].concat();
    let mut said = Vec::new();
    while !said.ends_with(&expected) {
        let read = tokio::time::timeout(PATIENCE, stranger.read_buf(&mut said));
        assert_ne!(read.await.unwrap().unwrap(), 0, "the connection ended: {said:02x?}");
    }
    drop(stranger);
    while news.recv().await.is_some() {}
    assert!(peer.await.unwrap().error.is_none());
}

#[tokio::test]
async fn a_peer_ends_with_the_server() {
    let ((peer, stream), _stranger, orders, news) = connection().await;
    let peer = tokio::spawn(peer.run(stream));
    drop((orders, news));
    let ended = tokio::time::timeout(PATIENCE, peer).await;
    assert!(!ended.expect("it ends").unwrap().was_ready);
}

#[tokio::test]
async fn interest_is_told_when_it_changes() {
    let ((mut peer, stream), mut stranger, _orders, mut news) = connection().await;
    peer.is_quiet = true;
    let peer = tokio::spawn(peer.run(stream));
    stranger.write_all(&HELLO).await.unwrap();
    // Set-config: request whole packets.
    let set_config = [4, 9, 0, 12, 0, 0, 0, 2, 0, 0, 0xff, 0xff];
    stranger.write_all(&set_config).await.unwrap();
    let mut told = Vec::new();
    while told.len() < 3 {
        match news.recv().await.unwrap().1 {
            FromPeer::Event(SwitchEvent::Ready) => told.push("ready"),
            FromPeer::Event(SwitchEvent::Request(_)) => told.push("request"),
            FromPeer::Listens(true) => told.push("listens"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told, ["ready", "request", "listens"]);
    drop(stranger);
    let mut was_closed = false;
    while let Some((_, told)) = news.recv().await {
        was_closed |= matches!(told, FromPeer::Event(SwitchEvent::Closed(_)));
    }
    assert!(was_closed && peer.await.unwrap().was_ready);
}

/// The defaults are what such a controller wants. Querying its role is not a sign of interest.
#[tokio::test]
async fn who_asks_for_messages_gets_them_whatever_it_says() {
    let role = |role| Body::RoleRequest(RoleMessage { role, generation_id: 0 });
    for (body, expected) in [
        (Body::SetAsync(AsyncConfig::default()), true),
        (role(ControllerRole::Equal), true),
        (role(ControllerRole::NoChange), false),
    ] {
        let ((mut peer, stream), mut stranger, _orders, mut news) = connection().await;
        peer.is_quiet = true;
        let peer = tokio::spawn(peer.run(stream));
        let mut bytes = HELLO.to_vec();
        Message { xid: 2, body: body.clone() }.encode(&mut bytes).unwrap();
        stranger.write_all(&bytes).await.unwrap();
        if expected {
            while !matches!(news.recv().await, Some((_, FromPeer::Listens(true)))) {}
        }
        drop(stranger);
        while let Some((_, told)) = news.recv().await {
            assert!(!matches!(told, FromPeer::Listens(true)), "{body:?}");
        }
        assert!(peer.await.unwrap().was_ready);
    }
}

/// They wait in the connection, and TCP flow control slows down the sender.
#[tokio::test]
async fn packet_outs_wait_for_those_before_them() {
    const COUNT: usize = 100;
    let ((peer, stream), mut stranger, _orders, mut news) = connection().await;
    let room = peer.room.clone();
    let peer = tokio::spawn(peer.run(stream));
    let packet = PacketOut::new(vec![0; 60_000], vec![Action::output(PortNo(1))]);
    let mut bytes = HELLO.to_vec();
    for xid in (1..).take(COUNT) {
        let message = Message { xid, body: Body::PacketOut(packet.clone()) };
        message.encode(&mut bytes).unwrap();
    }
    let sender = tokio::spawn(async move { stranger.write_all(&bytes).await.map(|()| stranger) });
    let (mut held, mut most, mut count) = (VecDeque::new(), 0, 0);
    while count < COUNT {
        // The worker completes the oldest when there is no more space.
        if room.available_permits() < packet_out_weight(60_000, 1) {
            held.pop_front();
        }
        if let FromPeer::PacketOut(_, room) = news.recv().await.unwrap().1 {
            held.push_back(room);
            count += 1;
            most = most.max(held.len());
        }
    }
    assert!((2..=PACKET_OUT_ROOM / 60_000).contains(&most), "{most} at once");
    drop((held, news, sender.await.unwrap().unwrap()));
    assert!(peer.await.unwrap().was_ready);
}

/// The controller does not read meanwhile.
#[tokio::test]
async fn packets_of_one_port_leave_room_for_those_of_others() {
    let ((peer, stream), mut stranger, orders, mut news) = connection().await;
    let peer = tokio::spawn(peer.run(stream));
    stranger.write_all(&HELLO).await.unwrap();
    while !matches!(news.recv().await, Some((_, FromPeer::Event(SwitchEvent::Ready)))) {}
    for _ in 0..400 {
        assert!(orders.send(packet_in_of(1, vec![0; 60_000])));
    }
    assert!(orders.send(packet_in_of(2, vec![0xab; 60])));
    orders.send(ToPeer::Reply(9, Body::BarrierReply));
    let mut said = Vec::new();
    while !said.ends_with(&[4, 21, 0, 8, 0, 0, 0, 9]) {
        let read = tokio::time::timeout(PATIENCE, stranger.read_buf(&mut said));
        assert_ne!(read.await.unwrap().unwrap(), 0, "the connection ended");
    }
    assert!(said.windows(60).any(|bytes| bytes == [0xab; 60]), "the probe is lost");
    assert!((2 << 20..6 << 20).contains(&said.len()), "{} bytes", said.len());
    orders.send(packet_in_of(1, vec![0xcd; 60_000]));
    while !said.ends_with(&[0xcd; 60_000]) {
        let read = tokio::time::timeout(PATIENCE, stranger.read_buf(&mut said));
        assert_ne!(read.await.unwrap().unwrap(), 0, "the connection ended");
    }
    drop((stranger, orders));
    while news.recv().await.is_some() {}
    assert!(peer.await.unwrap().was_ready);
}
