//! Weekly schedule of a policy.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::UnixTime;
use crate::text::{ParseTextError, as_text};

/// Hours of the week in UTC: `Mon-Fri 08:00-18:00; Sat 10:00-12:00`. Omitted days mean all days,
/// omitted hours the whole day; hours whose end is before their start continue on the next day.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    windows: Vec<Window>,
}

/// A time range on some days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Window {
    /// Bit *n* for day *n*, Monday first.
    days: u8,
    /// Minute of the day.
    from: u16,
    /// Minute of the day, at most [`DAY`]; if not after `from`, of the next day.
    to: u16,
}

impl Schedule {
    /// Whether copies are made at this time.
    pub fn is_open(&self, time: UnixTime) -> bool {
        self.is_open_at(minute_of_week(time))
    }

    /// The time of the next change; `None` if there is none.
    pub fn next_change(&self, time: UnixTime) -> Option<UnixTime> {
        let minute = minute_of_week(time);
        let is_open = self.is_open_at(minute);
        let ends = self.windows.iter().flat_map(|window| window.ends());
        let ahead = ends.map(|end| match (end + WEEK - minute) % WEEK {
            0 => WEEK,
            ahead => ahead,
        });
        let changes = ahead.filter(|ahead| self.is_open_at((minute + ahead) % WEEK) != is_open);
        let start = time.0 - time.0 % MINUTE_MS;
        changes.min().map(|ahead| UnixTime(start + u64::from(ahead) * MINUTE_MS))
    }

    fn is_open_at(&self, minute: u32) -> bool {
        self.windows.iter().any(|window| window.contains(minute))
    }
}

impl Window {
    /// Whether a minute of the week is inside, on its own day or continued from the day before.
    fn contains(self, minute: u32) -> bool {
        let (day, minute) = (minute / u32::from(DAY), minute % u32::from(DAY));
        let (from, to) = (self.from.into(), self.to.into());
        let has = |day: u32| self.days >> (day % 7) & 1 == 1;
        match from < to {
            true => has(day) && (from..to).contains(&minute),
            false => has(day) && minute >= from || has(day + 6) && minute < to,
        }
    }

    /// Minutes of the week at which the window may open or close.
    fn ends(self) -> impl Iterator<Item = u32> {
        let minutes = [self.from, self.to].map(u32::from);
        (0..8).flat_map(move |day| minutes.map(|minute| (day * u32::from(DAY) + minute) % WEEK))
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, window) in self.windows.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{window}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        let (is_all_days, is_all_day) = (self.days == ALL_DAYS, (self.from, self.to) == (0, DAY));
        if !is_all_days || is_all_day {
            f.write_str(&days_text(self.days))?;
        }
        match (is_all_days, is_all_day) {
            (_, true) => Ok(()),
            (true, false) => write!(f, "{}-{}", hours(self.from), hours(self.to)),
            (false, false) => write!(f, " {}-{}", hours(self.from), hours(self.to)),
        }
    }
}

/// Prints days as ranges, as in `Mon-Fri,Sun`.
fn days_text(days: u8) -> String {
    let has = |day: usize| days >> day & 1 == 1;
    let starts = (0..7).filter(|day| has(*day) && (*day == 0 || !has(day - 1)));
    let runs = starts.map(|first| {
        let len = (first..7).take_while(|day| has(*day)).count();
        let name = |day: usize| DAYS.get(day).copied().unwrap_or_default();
        let last = first + len - 1;
        let sign = if len == 2 { "," } else { "-" };
        if len == 1 { name(first).to_owned() } else { [name(first), sign, name(last)].concat() }
    });
    runs.collect::<Vec<_>>().join(",")
}

impl FromStr for Schedule {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let windows: Option<Vec<_>> = text.split(';').map(|part| window(part.trim())).collect();
        let windows = windows.filter(|windows| windows.len() <= MAX_WINDOWS);
        windows.map(|windows| Self { windows }).ok_or_else(|| ParseTextError::new(text, EXPECTED))
    }
}

fn window(text: &str) -> Option<Window> {
    let (days, hours) = match text.split_once(' ') {
        Some((days, hours)) => (days, hours.trim()),
        None if text.contains(':') => ("", text),
        None => (text, ""),
    };
    let days = if days.is_empty() && !hours.is_empty() { ALL_DAYS } else { read_days(days)? };
    if hours.is_empty() {
        return Some(Window { days, from: 0, to: DAY });
    }
    let (from, to) = hours.split_once('-')?;
    let (from, to) = (minute(from)?, minute(to)?);
    (from != to && from != DAY).then_some(Window { days, from, to })
}

fn read_days(text: &str) -> Option<u8> {
    let day = |name: &str| DAYS.iter().position(|day| day.eq_ignore_ascii_case(name));
    text.split(',').try_fold(0, |days, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        let len = (last + 7 - first) % 7;
        Some((0..=len).fold(days, |days, ahead| days | 1 << ((first + ahead) % 7)))
    })
}

fn minute(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u16>().ok()).flatten()
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let minute = hours * 60 + minutes;
    (minutes < 60 && minute <= DAY).then_some(minute)
}

fn minute_of_week(time: UnixTime) -> u32 {
    // 1 January 1970 was a Thursday.
    let minutes = time.0 / MINUTE_MS + 3 * u64::from(DAY);
    u32::try_from(minutes % u64::from(WEEK)).unwrap_or(0)
}

impl Serialize for Schedule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        as_text::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Schedule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        as_text::deserialize(deserializer)
    }
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const ALL_DAYS: u8 = 0x7f;
/// Minutes.
const DAY: u16 = 24 * 60;
const WEEK: u32 = 7 * DAY as u32;
const MINUTE_MS: u64 = 60_000;
/// More than one for each day and night.
const MAX_WINDOWS: usize = 16;
const EXPECTED: &str =
    "days and hours in UTC, as in `Mon-Fri 08:00-18:00`, several separated by `;`";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Time after Monday, 2026-11-23, 00:00 UTC.
    fn at(day: u64, hours: u64, minutes: u64) -> UnixTime {
        let monday: UnixTime = "2026-11-23T00:00:00Z".parse().unwrap();
        UnixTime(monday.0 + ((day * 24 + hours) * 60 + minutes) * MINUTE_MS)
    }

    fn schedule(text: &str) -> Schedule {
        text.parse().unwrap()
    }

    #[test]
    fn hours_of_the_week() {
        let work = schedule("Mon-Fri 08:00-18:00");
        for (day, hours, minutes, is_open) in [
            (0, 8, 0, true),
            (0, 7, 59, false),
            (4, 17, 59, true),
            (4, 18, 0, false),
            (5, 9, 0, false),
        ] {
            assert_eq!(work.is_open(at(day, hours, minutes)), is_open, "{day} {hours} {minutes}");
        }
        assert_eq!(work.next_change(at(0, 9, 30)), Some(at(0, 18, 0)));
        assert_eq!(work.next_change(at(4, 18, 0)), Some(at(7, 8, 0)));
        let night = schedule("Sun 22:00-06:00");
        assert!(night.is_open(at(6, 23, 0)) && night.is_open(at(7, 5, 59)));
        assert!(!night.is_open(at(7, 6, 0)) && !night.is_open(at(6, 5, 0)));
        let always = schedule("Mon-Sun");
        assert!(always.is_open(at(2, 0, 0)));
        assert_eq!(always.next_change(at(2, 0, 0)), None);
    }

    #[test]
    fn text_survives_a_round_trip() {
        for (text, shown) in [
            ("Mon-Fri 08:00-18:00", "Mon-Fri 08:00-18:00"),
            ("fri-mon 00:00-24:00", "Mon,Fri-Sun"),
            ("08:00-09:30", "08:00-09:30"),
            ("Sat,Sun;Mon 20:00-04:00", "Sat,Sun; Mon 20:00-04:00"),
            ("mon,tue", "Mon,Tue"),
        ] {
            assert_eq!(schedule(text).to_string(), shown);
            assert_eq!(schedule(shown), schedule(text));
        }
        for text in
            ["", "Mon-", "Mon 8-9", "Mo", "Mon 08:00-08:00", "25:00-26:00", "Mon 08:60-09:00", "x;"]
        {
            assert_eq!(text.parse::<Schedule>().unwrap_err().expected, EXPECTED, "{text}");
        }
    }

    proptest! {
        /// Nothing changes between two changes, and each change is one.
        #[test]
        fn the_next_change_is_the_next(
            days in 1..=ALL_DAYS, from in 0..DAY, len in 1..DAY, other in 0..DAY, now in 0..WEEK,
        ) {
            let window = Window { days, from, to: (from + len) % DAY };
            let second = Window { days: 1, from: other, to: DAY };
            let schedule = Schedule { windows: vec![window, second] };
            prop_assert_eq!(&schedule.to_string().parse::<Schedule>().unwrap(), &schedule);
            let now = UnixTime(u64::from(now) * MINUTE_MS + 17);
            let is_open = schedule.is_open(now);
            let minutes = 1..=u64::from(WEEK);
            let mut times = minutes.map(|ahead| UnixTime(now.0 - 17 + ahead * MINUTE_MS));
            let expected = times.find(|time| schedule.is_open(*time) != is_open);
            prop_assert_eq!(schedule.next_change(now), expected);
        }
    }
}
