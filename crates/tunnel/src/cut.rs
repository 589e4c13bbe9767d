//! Which of the frames that are sent were longer.

/// What was cut away of frames before they are sent. ERSPAN tells the other end of each frame that
/// was cut short (T, draft-foschiano-erspan-03 §4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cut<'a> {
    /// Nothing.
    #[default]
    None,
    /// All behind this many bytes. A frame of just as many is told as cut, though it may have had
    /// no more: for who knows that it had.
    To(usize),
    /// What each of the frames had more: their lengths in bytes before, in the order in which they
    /// are sent. One that has no length here is whole.
    Each(&'a [usize]),
}

impl Cut<'_> {
    /// True when the frame at `index`, of which `len` bytes are sent, was longer.
    #[inline]
    pub(crate) fn is_cut(self, index: usize, len: usize) -> bool {
        match self {
            Self::None => false,
            Self::To(cut) => len >= cut,
            Self::Each(lengths) => lengths.get(index).is_some_and(|whole| len < *whole),
        }
    }
}

impl From<Option<usize>> for Cut<'_> {
    /// `Some` is [`Cut::To`].
    #[inline]
    fn from(cut: Option<usize>) -> Self {
        cut.map_or(Self::None, Self::To)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_just_fits_was_not_cut() {
        let sent = [154, 154, 154, 100, 154];
        let told = |cut: Cut<'_>| {
            let is_cut: Vec<_> = (0..).zip(sent).map(|(at, len)| cut.is_cut(at, len)).collect();
            is_cut
        };
        let lengths = [1514, 154, 155, 100];
        assert_eq!(told(Cut::Each(&lengths)), [true, false, true, false, false]);
        assert_eq!(told(Cut::None), [false; 5]);
        assert_eq!(told(Some(154).into()), [true, true, true, false, true], "who says so knows");
        assert_eq!((Cut::from(None), Cut::default()), (Cut::None, Cut::None));
    }
}
