//! Which packets are sent together: those of one `UDP_SEGMENT` call have the same length, except
//! the last one, which may be shorter (udp(7)).

/// Number of packets from the start of `lens` that one call accepts; zero only if there are none.
/// `lens` are the lengths of datagrams in bytes.
pub(crate) fn first_run(lens: impl IntoIterator<Item = usize>) -> usize {
    let (mut count, mut sum, mut stride) = (0, 0, None);
    for len in lens {
        let stride = *stride.get_or_insert(len);
        let fits = len <= stride && sum + len <= DATAGRAMS_LEN_MAX && count < MAX_PACKETS;
        if count > 0 && !fits {
            break;
        }
        (count, sum) = (count + 1, sum + len);
        if len < stride {
            break;
        }
    }
    count
}

/// Maximum number of packets of one call (`UDP_MAX_SEGMENTS`; 64 before Linux 6.9, 128 since).
pub const MAX_PACKETS: usize = 64;

/// Maximum total length of the datagrams of one call in bytes: an IPv4 packet of 65,535 bytes less
/// its IP and UDP headers, which the kernel counts once (`udp_sendmsg`).
pub const DATAGRAMS_LEN_MAX: usize = 65_535 - 20 - 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_train_of_64_kib_takes_two_calls() {
        let lens = [vec![1506; 45], vec![20]].concat();
        assert_eq!(first_run(lens.iter().copied()), 43);
        assert_eq!(first_run(lens[43..].iter().copied()), 3);
        assert_eq!(first_run([100; 70]), MAX_PACKETS);
        assert_eq!(first_run([]), 0);
        assert_eq!(first_run([70_000, 70_000]), 1, "the kernel is to say what is wrong with it");
    }

    proptest! {
        #[test]
        fn runs_are_what_the_kernel_takes(lens in prop::collection::vec(1..3_000usize, 1..200)) {
            let (mut rest, mut total) = (&lens[..], 0);
            while !rest.is_empty() {
                let count = first_run(rest.iter().copied());
                prop_assert!((1..=MAX_PACKETS).contains(&count));
                let (run, behind) = rest.split_at(count);
                prop_assert!(run.iter().sum::<usize>() <= DATAGRAMS_LEN_MAX);
                prop_assert!(run[..count - 1].iter().all(|len| *len == run[0]));
                prop_assert!(run[count - 1] <= run[0]);
                (rest, total) = (behind, total + count);
            }
            prop_assert_eq!(total, lens.len());
        }
    }
}
