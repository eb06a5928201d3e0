//! Windows as calendars have them, worked out for as long as anybody will run this.
//!
//! The library knows a calendar as a list of boundaries; here are time zones, leap years and billing
//! days. Boundaries are the first instant of a day where the rule's clocks hang: a day on which they
//! are put forward has 23 hours, and where midnight itself is skipped the day begins when they have
//! been put forward.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, ToSpan};
use tollgate::Timestamp;
use tollgate::quota::{Calendar, Period};

/// The first year whose windows are known exactly, and the first whose are not: from then on they are
/// as long as the last that is.
const FIRST_YEAR: i16 = 2020;
const END_YEAR: i16 = 2120;

/// What a window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Unit {
    Day,
    Week,
    Month,
    Year,
}

impl Unit {
    /// All with their names, as they follow `calendar-`.
    pub(crate) const NAMED: [(&'static str, Self); 4] =
        [("day", Self::Day), ("week", Self::Week), ("month", Self::Month), ("year", Self::Year)];

    fn name(self) -> &'static str {
        let named = Self::NAMED.iter().find(|(_, unit)| *unit == self);
        named.expect("every unit has a name").0
    }
}

/// Whose days, and which of a month is its first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Whose {
    /// The time zone's name in the database.
    pub(crate) zone: String,
    /// From 1 to 31; in a month without that day, its last.
    pub(crate) starts_on: i8,
}

impl Default for Whose {
    fn default() -> Self {
        Self { zone: "UTC".to_owned(), starts_on: 1 }
    }
}

/// The time zone of this name, as the bundled database has it.
pub(crate) fn zone(name: &str) -> Option<TimeZone> {
    jiff::tz::db().get(name).ok()
}

/// The names of all time zones.
pub(crate) fn zones() -> Vec<String> {
    jiff::tz::db().available().map(|name| name.to_string()).collect()
}

/// The windows of `unit`; `None` where there is no such zone.
///
/// Each is worked out once and kept for good: there are only as many as operators write, and quotas
/// that speak of them are copied on every request.
pub(crate) fn period(unit: Unit, whose: &Whose) -> Option<Period> {
    type Known = Mutex<HashMap<(Unit, Whose), &'static Calendar>>;
    static KNOWN: OnceLock<Known> = OnceLock::new();

    let known = KNOWN.get_or_init(Known::default);
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    // Only months begin on another day than the calendar's.
    let starts_on = if unit == Unit::Month { whose.starts_on } else { 1 };
    let whose = &Whose { zone: whose.zone.clone(), starts_on };
    let key = (unit, whose.clone());
    let calendar = match known.get(&key) {
        Some(calendar) => *calendar,
        None => {
            let boundaries = boundaries(unit, &zone(&whose.zone)?, whose.starts_on);
            let calendar = Calendar::new(name(unit, whose), boundaries)?;
            let calendar: &'static Calendar = Box::leak(Box::new(calendar));
            known.insert(key, calendar);
            calendar
        }
    };
    Some(Period::calendar(calendar))
}

/// How the calendar is written, and part of the names of its buckets.
fn name(unit: Unit, whose: &Whose) -> String {
    let from = match (unit, whose.starts_on) {
        (Unit::Month, 2..) => format!("-{}", whose.starts_on),
        _ => String::new(),
    };
    let at = match whose.zone.as_str() {
        "UTC" => String::new(),
        zone => format!("@{zone}"),
    };
    format!("calendar-{}{from}{at}", unit.name())
}

fn boundaries(unit: Unit, zone: &TimeZone, starts_on: i8) -> Vec<Timestamp> {
    let mut starts: Vec<Timestamp> =
        dates(unit, starts_on).filter_map(|date| first_instant(date, zone)).collect();
    // A day that a zone skipped begins when the next does.
    starts.dedup();
    starts
}

/// The first day of every window.
fn dates(unit: Unit, starts_on: i8) -> Box<dyn Iterator<Item = Date>> {
    let january = Date::constant(FIRST_YEAR, 1, 1);
    let end = Date::constant(END_YEAR, 1, 1);
    let every =
        move |first: Date, step: Span| first.series(step).take_while(move |date| *date <= end);
    let day = move |month: Date| {
        let day = starts_on.min(month.days_in_month());
        month.with().day(day).build().unwrap_or(month)
    };
    match unit {
        Unit::Day => Box::new(every(january, 1.day())),
        Unit::Week => {
            let monday = january.nth_weekday(1, Weekday::Monday).unwrap_or(january);
            Box::new(every(monday, 1.week()))
        }
        Unit::Month => Box::new(every(january, 1.month()).map(day)),
        Unit::Year => Box::new(every(january, 1.year())),
    }
}

/// When a day begins.
fn first_instant(date: Date, zone: &TimeZone) -> Option<Timestamp> {
    let start = date.to_zoned(zone.clone()).ok()?;
    let micros = u64::try_from(start.timestamp().as_microsecond()).ok()?;
    Some(Timestamp::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(unit: Unit, zone: &str, starts_on: i8, at: &str) -> (String, String) {
        let whose = Whose { zone: zone.to_owned(), starts_on };
        let calendar = period(unit, &whose).unwrap().as_calendar().unwrap();
        let at: jiff::Timestamp = at.parse().unwrap();
        let window = calendar.window(Timestamp::from_micros(at.as_microsecond() as u64));
        let show = |instant: Timestamp| {
            let instant = jiff::Timestamp::from_microsecond(instant.as_micros() as i64);
            instant.unwrap().to_string()
        };
        (show(window.start), show(window.end))
    }

    fn expect(unit: Unit, zone: &str, starts_on: i8, at: &str, start: &str, end: &str) {
        let found = window(unit, zone, starts_on, at);
        assert_eq!(found, (start.to_owned(), end.to_owned()), "{unit:?} {zone} {starts_on} {at}");
    }

    #[test]
    fn days_are_as_long_as_the_clocks_make_them() {
        use Unit::Day;
        let berlin = "Europe/Berlin";
        // 24 hours in winter, 23 when the clocks go forward, 25 when they go back.
        let (winter, spring) = ("2026-01-15T12:00:00Z", "2026-03-29T12:00:00Z");
        let autumn = "2026-10-25T12:00:00Z";
        expect(Day, berlin, 1, winter, "2026-01-14T23:00:00Z", "2026-01-15T23:00:00Z");
        expect(Day, berlin, 1, spring, "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z");
        expect(Day, berlin, 1, autumn, "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z");
        // The last instant of a day, and the first of the next.
        let (last, first) = ("2026-03-29T21:59:59.999999Z", "2026-03-29T22:00:00Z");
        expect(Day, berlin, 1, last, "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z");
        expect(Day, berlin, 1, first, "2026-03-29T22:00:00Z", "2026-03-30T22:00:00Z");
        expect(Day, "UTC", 1, spring, "2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z");
        // In Beirut midnight itself is skipped: the day begins at one.
        let beirut = "2026-03-29T12:00:00Z";
        expect(Day, "Asia/Beirut", 1, beirut, "2026-03-28T22:00:00Z", "2026-03-29T21:00:00Z");
    }

    #[test]
    fn months_have_28_to_31_days_and_bills_come_when_they_come() {
        use Unit::Month;
        let leap = "2028-02-29T12:00:00Z";
        expect(Month, "UTC", 1, leap, "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z");
        let plain = "2026-02-28T12:00:00Z";
        expect(Month, "UTC", 1, plain, "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z");
        expect(Month, "UTC", 15, plain, "2026-02-15T00:00:00Z", "2026-03-15T00:00:00Z");
        let early = "2026-03-14T23:59:59Z";
        expect(Month, "UTC", 15, early, "2026-02-15T00:00:00Z", "2026-03-15T00:00:00Z");
        // Where there is no 31st, the last day.
        expect(Month, "UTC", 31, plain, "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z");
        expect(Month, "UTC", 31, leap, "2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z");
        let new_year = "2026-12-31T20:00:00Z";
        let tokyo = "Asia/Tokyo";
        expect(Month, tokyo, 1, new_year, "2026-12-31T15:00:00Z", "2027-01-31T15:00:00Z");
        // A month in which the clocks change is an hour longer or shorter.
        let october = "2026-10-10T00:00:00Z";
        let berlin = "Europe/Berlin";
        expect(Month, berlin, 1, october, "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z");
    }

    #[test]
    fn weeks_begin_on_monday_and_years_in_january() {
        let at = "2026-11-18T12:00:00Z";
        expect(Unit::Week, "UTC", 1, at, "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z");
        expect(Unit::Year, "UTC", 1, at, "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
    }

    #[test]
    fn the_same_words_are_the_same_calendar() {
        let whose = Whose { zone: "Europe/Berlin".to_owned(), starts_on: 15 };
        let one = period(Unit::Month, &whose).unwrap();
        assert_eq!(one, period(Unit::Month, &whose).unwrap());
        assert_eq!(one.to_string(), "calendar-month-15@Europe/Berlin");
        assert_ne!(one, period(Unit::Day, &whose).unwrap());
        assert_eq!(period(Unit::Day, &Whose::default()).unwrap().to_string(), "calendar-day");
        assert!(period(Unit::Day, &Whose { zone: "Mars/Olympus".into(), starts_on: 1 }).is_none());
    }
}
