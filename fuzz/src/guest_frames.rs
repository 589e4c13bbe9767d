//! Target `guest_frames`: from guest to guest, a frame arrives as it was when its headers were
//! fetched, or not at all.

use std::iter;

use tapswitch_vhost::{Direction, Features, NET_HEADER_LEN, Part, Ring, Running, Undelivered};

use crate::guest::{Guest, LEN, check_chain, size_of, take};

/// `data`: choices for both guests, the sizes of their rings, the number of bytes of operations,
/// the operations, and the memory contents of the first and the second guest.
pub fn guest_frames(data: &[u8]) {
    let Some((&[choices, other_choices, size, other_size, count], rest)) = data.split_first_chunk()
    else {
        return;
    };
    let (mut operations, images) = rest.split_at(rest.len().min(count.into()));
    let (image, other_image) = images.split_at(images.len() / 2);
    let (Some(from), Some(to)) = (Guest::new(image), Guest::new(other_image)) else { return };
    let (sender, receiver) = (
        running(&from, choices, size, Direction::Transmit),
        running(&to, other_choices, other_size, Direction::Receive),
    );
    let (Some(mut sender), Some(mut receiver)) = (sender, receiver) else { return };
    while let Some(operation) = take(&mut operations) {
        let goes_on = match operation % 4 {
            0 => forward(&mut sender, &mut receiver, operation / 4),
            1 => {
                sender.publish();
                receiver.publish();
                true
            }
            2 => sender.arm() || receiver.arm() || operation > 4,
            _ => {
                let guest = if operation & 4 == 0 { &from } else { &to };
                poke(guest, &mut operations).is_some()
            }
        };
        if !goes_on {
            break;
        }
    }
    from.check();
    to.check();
}

/// A ring of a guest with the features in `choices`.
fn running(guest: &Guest, choices: u8, size: u8, direction: Direction) -> Option<Running> {
    let all = [
        Features::VERSION_1,
        Features::MRG_RXBUF,
        Features::RING_PACKED,
        Features::INDIRECT_DESC,
        Features::EVENT_IDX,
    ];
    let chosen = all.into_iter().enumerate().filter(|(bit, _)| choices & 1 << bit != 0);
    let features = chosen.fold(Features::empty(), |features, (_, feature)| features | feature);
    let packed = features.contains(Features::RING_PACKED);
    let (place, base) = (Guest::place(size_of(size)), if packed { 0x8000_8000 } else { 0 });
    let ring = Ring::new(&guest.memory, &place, features.ring(), direction, base).ok()?;
    Some(Running::new(ring, features, None, None))
}

/// Forwards up to `count` frames. `false` if one of the rings can no longer be used.
fn forward(sender: &mut Running, receiver: &mut Running, count: u8) -> bool {
    for _ in 0..count {
        match sender.fetch(16) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
        let Some(chain) = sender.peek(0) else { return true };
        check_chain(sender.chains(), &chain);
        let mut head = [0; 64];
        let Some((header, len)) = sender.read_frame(&chain, &mut head) else {
            assert!(chain.len() < NET_HEADER_LEN);
            sender.complete(0);
            continue;
        };
        let head = head.get(..len).unwrap_or(&head);
        let rest: usize = sender.frame_from(&chain, head.len()).map(|part| part.len()).sum();
        assert_eq!(head.len() + rest, len);
        let parts = iter::once(Part::Ours(head)).chain(sender.frame_from(&chain, head.len()));
        match receiver.deliver(header, len, parts) {
            Err(Undelivered::Ring(_)) => return false,
            Ok(()) | Err(Undelivered::Full | Undelivered::TooLong | Undelivered::Unready) => {}
        }
        sender.complete(0);
    }
    true
}

fn poke(guest: &Guest, data: &mut &[u8]) -> Option<()> {
    let offset = u16::from_le_bytes([take(data)?, take(data)?]);
    guest.write(u64::from(offset) % LEN, &[take(data)?, take(data)?]);
    Some(())
}
