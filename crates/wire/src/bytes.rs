//! Big-endian loads and stores at named offsets.

/// The big-endian 16-bit number at `at`.
///
/// # Panics
/// If `bytes` ends before `at + 2`.
#[inline]
pub fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(whole(&bytes[at..at + 2]))
}

/// The big-endian 32-bit number at `at`.
///
/// # Panics
/// If `bytes` ends before `at + 4`.
#[inline]
pub fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(whole(&bytes[at..at + 4]))
}

/// Stores `value` big-endian at `at`.
///
/// # Panics
/// If `bytes` ends before `at + 2`.
#[inline]
pub fn write_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Stores `value` big-endian at `at`.
///
/// # Panics
/// If `bytes` ends before `at + 4`.
#[inline]
pub fn write_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Converts `bytes`, which must have `N` bytes, to an array: one length check and one load, instead
/// of one of each per byte.
#[inline]
fn whole<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

/// The `N` bytes at `at` as an array, or `None` past the end.
#[inline]
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}
