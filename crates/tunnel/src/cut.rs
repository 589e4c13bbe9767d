//! Which of the sent frames were truncated.

/// Truncation of frames before sending. ERSPAN reports each truncated frame to the other end (T,
/// draft-foschiano-erspan-03 §4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cut<'a> {
    /// Not truncated.
    #[default]
    None,
    /// Truncated to this length in bytes. A frame of exactly this length counts as truncated,
    /// although it may not have been longer: for callers who know that it was.
    To(usize),
    /// Original lengths of the frames in bytes, in sending order. A frame without a length here is
    /// not truncated.
    Each(&'a [usize]),
}

impl Cut<'_> {
    /// True if the frame at `index`, of which `len` bytes are sent, was longer.
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
