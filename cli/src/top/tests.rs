use super::*;

fn scrape(text: &str) -> Scrape {
    Scrape::of(&Exposition::parse(text).unwrap())
}

/// The page of a konnector with one binding, whose changes took at most 0.1 s, 1 s or longer.
fn page([fast, slow, all]: [u32; 3], bytes: u32) -> String {
    format!(
        "bindery_leading 1\n\
         bindery_sync_objects{{binding=\"cowboys\",resource=\"cowboys.wildwest.dev\"}} 5\n\
         bindery_sync_objects{{binding=\"cowboys\",resource=\"sheriffs.wildwest.dev\"}} 2\n\
         bindery_sync_pending{{binding=\"cowboys\",resource=\"cowboys.wildwest.dev\"}} 1\n\
         bindery_sync_received_bytes_total{{binding=\"cowboys\",side=\"consumer\"}} {bytes}\n\
         bindery_sync_lag_seconds_bucket{{le=\"0.1\",binding=\"cowboys\",direction=\"up\"}} {fast}\n\
         bindery_sync_lag_seconds_bucket{{le=\"1.0\",binding=\"cowboys\",direction=\"up\"}} {slow}\n\
         bindery_sync_lag_seconds_bucket{{le=\"+Inf\",binding=\"cowboys\",direction=\"up\"}} {all}\n\
         bindery_sync_lag_seconds_bucket{{le=\"+Inf\",binding=\"cowboys\",direction=\"down\"}} 0\n\
         # EOF\n"
    )
}

fn near(value: Option<f64>, expect: Option<f64>) -> bool {
    match (value, expect) {
        (Some(value), Some(expect)) => (value - expect).abs() < 1e-9,
        (value, expect) => value.is_none() && expect.is_none(),
    }
}

#[test]
fn two_scrapes_give_rates_and_the_lag_between_them() {
    let second = Duration::from_secs(1);
    // Before and after, then the expected changes and bytes per second, p50 and p99.
    for (before, after, changes, bytes, p50, p99) in [
        (
            ([0, 0, 0], 0),
            ([10, 10, 10], 2000),
            5.0,
            1000.0,
            Some(0.05),
            Some(0.099),
        ),
        (
            ([90, 90, 90], 10),
            ([90, 100, 100], 10),
            5.0,
            0.0,
            Some(0.55),
            Some(0.991),
        ),
        (([5, 5, 5], 10), ([5, 5, 7], 10), 1.0, 0.0, Some(1.0), Some(1.0)),
        (([5, 5, 5], 10), ([5, 5, 5], 30), 0.0, 10.0, None, None),
        // The konnector was started anew: it counts from zero.
        (([50, 50, 50], 900), ([2, 2, 2], 40), 1.0, 20.0, Some(0.05), Some(0.099)),
    ] {
        let [before, after] = [before, after].map(|(lags, bytes)| scrape(&page(lags, bytes)));
        let rows = after.rows(&before, 2 * second);
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((row.binding.as_str(), row.objects, row.pending), ("cowboys", 7, 1));
        assert!(near(Some(row.changes_per_second), Some(changes)), "{row:?}");
        assert!(near(Some(row.bytes_per_second), Some(bytes)), "{row:?}");
        assert!(near(row.lag.p50, p50) && near(row.lag.p99, p99), "{row:?}");
    }
}

#[test]
fn a_binding_that_is_new_counts_from_zero_and_one_that_is_gone_is_not_shown() {
    let (none, some) = (scrape("bindery_leading 0\n# EOF\n"), scrape(&page([4, 4, 4], 8)));
    assert!(!none.leads && some.leads);
    let rows = some.rows(&none, Duration::from_secs(4));
    assert!(near(Some(rows[0].changes_per_second), Some(1.0)), "{rows:?}");
    assert_eq!(none.rows(&some, Duration::from_secs(4)), []);
    let now = some.rows(&some, Duration::ZERO);
    assert!(near(Some(now[0].changes_per_second), Some(0.0)), "no time has passed");
}

#[test]
fn a_resource_that_is_served_no_more_makes_no_others_look_new() {
    let lag = |resource: &str, count: u32| {
        format!("bindery_sync_lag_seconds_bucket{{le=\"+Inf\",binding=\"cowboys\",resource=\"{resource}\"}} {count}\n")
    };
    let before = scrape(&format!("{}{}# EOF\n", lag("cowboys", 90_000), lag("sheriffs", 9)));
    let after = scrape(&format!("{}# EOF\n", lag("cowboys", 90_004)));
    let rows = after.rows(&before, Duration::from_secs(2));
    assert!(near(Some(rows[0].changes_per_second), Some(2.0)), "{rows:?}");
}

#[test]
fn a_row_is_json_with_names_that_do_not_change() {
    let rows = scrape(&page([4, 4, 4], 8)).rows(&scrape("# EOF\n"), Duration::from_secs(4));
    let json = serde_json::to_value(&rows[0]).unwrap();
    let names: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    for name in [
        "binding",
        "objects",
        "pending",
        "changes",
        "changesPerSecond",
        "lag",
        "bytes",
        "bytesPerSecond",
    ] {
        assert!(names.contains(&name), "{name} is missing in {names:?}");
    }
    assert!(json["lag"]["p99"].is_number());
}
