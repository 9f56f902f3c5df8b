use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[track_caller]
fn check(issued: i64, expires: i64, expect: (i64, i64)) {
    let times = Times::new(at(10_000), issued, expires).unwrap();
    assert_eq!((times.expires_at.as_second(), times.refresh_at.as_second()), expect);
}

#[test]
fn tokens_are_refreshed_before_they_expire_also_if_this_clock_is_behind() {
    check(10_000, 13_600, (13_600, 13_540));
    check(10_000, 10_040, (10_040, 10_030));
    // The clock of this machine is an hour behind.
    check(13_600, 17_200, (13_600, 13_540));
    // It is ahead.
    check(9_000, 12_600, (12_600, 12_540));
    // The issuer gives out a token that it made before.
    check(8_000, 10_100, (10_100, 10_075));
    check(20_000, 10_100, (10_100, 10_075));
    assert_eq!(Times::new(at(0), 0, i64::MAX), None);
}
