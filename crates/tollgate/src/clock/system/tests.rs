use std::time::Instant;

use super::*;

#[test]
fn follows_the_system_and_never_goes_back() {
    let mut last = SystemClock.now();
    for _ in 0..2_000_000 {
        let now = SystemClock.now();
        assert!(now >= last, "{now:?} after {last:?}");
        last = now;
    }
    let system = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
    let gap = SystemClock.now().as_micros().abs_diff(system);
    assert!(gap < 1_000_000, "{gap} µs apart");
}

#[test]
fn the_monotonic_clock_is_followed_closely_from_the_start() {
    for _ in 0..20 {
        let clock = Calibrated::new(Guide::Monotonic);
        // The first reading calibrates, and comes some time between these two.
        let (early, start, late) = (Instant::now(), clock.now(), Instant::now());
        let mut last = start;
        while late.elapsed().as_millis() < 25 {
            let least = late.elapsed().as_micros() as u64;
            let now = clock.now();
            let most = early.elapsed().as_micros() as u64;
            assert!(now >= last, "{now} after {last}");
            last = now;
            assert!(now - start <= most + most / 256 + 4, "{} µs in {most} µs", now - start);
            let least = (least - least / 256).saturating_sub(4);
            assert!(now - start >= least, "{} µs in {least} µs", now - start);
        }
    }
}

/// A drawing of a machine whose counter ticks 3,000 times a microsecond.
fn reading(real_micros: u64, guide_micros: u64) -> Reading {
    Reading { ticks: real_micros * 3_000, nanos: real_micros * 1_000, guide_micros }
}

fn machine() -> (Pencil, Line) {
    let first = reading(0, 5_000_000);
    let rate = reading(1_000_000, 0).rate_since(first);
    let length_nanos = LONGEST_LINE_NANOS;
    let mut pencil = Pencil { guide: Guide::System, first, last: first, rate, length_nanos };
    let line = Line { start: 0, origin: 5_000_000, rate, length: 3_000_000_000 };
    let line = pencil.draw(line, reading(1_000_000, 6_000_000));
    (pencil, line)
}

#[test]
fn a_system_set_back_is_approached_slowly() {
    let (mut pencil, mut line) = machine();
    let mut last = 6_000_000;
    for second in 2..=60 {
        // The system was set back by three seconds.
        let reading = reading(second * 1_000_000, (second + 2) * 1_000_000);
        line = pencil.draw(line, reading);
        assert!(line.origin >= last + 874_000, "slower than seven eighths");
        last = line.origin;
    }
    assert!(last.abs_diff(62_000_000) < 10, "not met: {last}");
}

#[test]
fn a_system_far_ahead_is_jumped_to() {
    let (mut pencil, line) = machine();
    let line = pencil.draw(line, reading(2_000_000, 3_600_000_000));
    assert_eq!(line.origin, 3_600_000_000);
}

#[test]
fn a_system_slightly_ahead_is_met_within_a_line() {
    let (mut pencil, line) = machine();
    let line = pencil.draw(line, reading(2_000_000, 7_010_000));
    assert!(line.origin.abs_diff(7_000_000) <= 1);
    assert!(line.extended_to(9_000_000_000).abs_diff(8_010_000) <= 2);
}

#[test]
fn a_line_is_not_followed_over_a_pause() {
    let (mut pencil, line) = machine();
    // It leans by one in a hundred, to meet the system a second later; and then nobody asks.
    let line = pencil.draw(line, reading(2_000_000, 7_010_000));
    let line = pencil.draw(line, reading(3_602_000_000, 3_607_010_000));
    assert!(line.origin.abs_diff(3_607_010_000) <= 2, "{}", line.origin);
}

#[test]
fn a_short_look_is_not_relied_on_over_a_pause() {
    // The look of 200 µs was disturbed by 200 ns: a rate that is off by one in a thousand.
    let first = reading(0, 5_000_000);
    let mut second = reading(200, 5_000_200);
    second.ticks += 600;
    let rate = second.rate_since(first);
    let length_nanos = FIRST_LOOK_NANOS;
    let mut pencil = Pencil { guide: Guide::System, first, last: second, rate, length_nanos };
    let length = ticks_in(length_nanos, rate);
    let line = Line { start: second.ticks, origin: 5_000_200, rate, length };
    let later = reading(3_600_000_000, 3_605_000_000);
    assert!(pencil.is_steady(later));
    let line = pencil.draw(line, later);
    assert!(line.origin.abs_diff(3_605_000_000) <= 5, "{}", line.origin);
}

#[test]
fn a_counter_that_slept_ran_on_or_changed_its_pace_is_not_believed() {
    let (pencil, _) = machine();
    let at = |ticks: u64, nanos: u64| Reading { ticks, nanos, guide_micros: 0 };
    // The last reading was at one second, at 3,000 ticks a microsecond.
    let second =
        |ticks_per_micro: u64| at(3_000_000_000 + ticks_per_micro * 1_000_000, 2_000_000_000);
    assert!(pencil.is_steady(second(3_000)) && pencil.is_steady(second(3_005)));
    assert!(!pencil.is_steady(second(2_500)) && !pencil.is_steady(second(3_100)));
    // It ran on while the monotonic clock slept; it began anew; and a day passed as it should.
    assert!(!pencil.is_steady(at(3_600 * 3_000_000_000, 1_100_000_000)));
    assert!(!pencil.is_steady(at(5, 1_000_400_000)));
    assert!(pencil.is_steady(at(86_401 * 3_000_000_000, 86_401_000_000_000)));
}

#[test]
fn a_counter_that_begins_anew_is_looked_at_afresh() {
    for guide in [Guide::System, Guide::Monotonic] {
        let clock = Calibrated::new(guide);
        let before = clock.now();
        // As if the counter had been a day further when the line was drawn.
        let line = clock.line().unwrap();
        let day = 86_400 * 3_000_000_000;
        clock.publish(Line { start: line.start + day, ..line });
        let mut pencil = clock.pencil.lock().unwrap();
        let Pencil { first, last, .. } = pencil.as_mut().unwrap();
        (first.ticks, last.ticks) = (first.ticks + day, last.ticks + day);
        drop(pencil);
        let (now, begun) = (clock.now(), Instant::now());
        assert!(now >= before && now - before < 3_000_000, "{before} before, {now} now");
        while begun.elapsed().as_millis() < 20 {}
        let gone = clock.now() - now;
        assert!(gone > 15_000, "20 ms passed, the clock says {gone} µs");
    }
}

#[test]
fn a_line_is_read_whole_or_not_at_all() {
    const LINES: u64 = 200_000;
    let clock = Calibrated::new(Guide::Monotonic);
    let line = |number: u64| Line {
        start: number,
        origin: number * 3,
        rate: number * 5,
        length: number * 7,
    };
    clock.publish(line(1));
    let reads = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut reads, mut last) = (0_u64, 0);
            while last < LINES {
                let Some(read) = clock.line() else { continue };
                assert!(read.start >= last, "{} after {last}", read.start);
                (reads, last) = (reads + 1, read.start);
                assert_eq!(format!("{read:?}"), format!("{:?}", line(last)));
            }
            reads
        });
        (2..=LINES).for_each(|number| clock.publish(line(number)));
        reader.join().unwrap()
    });
    assert!(reads > 0);
}

#[test]
fn a_marked_start_is_beyond_the_end_of_any_line() {
    let line = Line { start: 0, origin: 5, rate: 1, length: 1 << 61 };
    const MOST: u64 = (1 << 62) - 1;
    for ticks in [0, 1, 1 << 40, MOST] {
        assert_eq!(Line { start: WRITING, ..line }.at(ticks), None, "{ticks}");
        for start in [0, 1, 1 << 40, MOST] {
            assert_eq!(Line { start: start | SLOW, ..line }.at(ticks), None, "{ticks}, {start}");
        }
    }
}

#[test]
fn a_quick_counter_may_have_been_set_to_anything() {
    let clock = Calibrated::new(Guide::Monotonic);
    for start in [1, 1 << 40, SLOW | 5, u64::MAX - 5] {
        clock.publish(Line { start, origin: 7, rate: 1, length: 9 });
        let read = clock.line().unwrap().start;
        assert_eq!(read, if counter::is_quick() { start } else { start & !SLOW });
    }
}
