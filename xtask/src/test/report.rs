//! The times of tests, as their programs tell them.

use super::job::Job;

/// How many of the slowest tests the end of a run shows.
const SLOWEST: usize = 10;

/// How long one test took.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TestTime {
    seconds: f64,
    program: String,
    test: String,
}

impl TestTime {
    /// Reads the times from the output of a job. Lines such as `test name ... ok <1.234s>` have one.
    pub(super) fn read(job: &Job, output: &str) -> Vec<Self> {
        let read = |line: &str| {
            let (test, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
            let (_, time) = outcome.rsplit_once('<')?;
            Some(Self {
                seconds: time.strip_suffix("s>")?.parse().ok()?,
                program: job.name.clone(),
                test: test.to_owned(),
            })
        };
        output.lines().filter_map(read).collect()
    }
}

/// Prints the slowest tests of a run that passed with their seconds, and how many tests there were.
pub(super) fn print_slowest(times: &[TestTime]) {
    eprintln!("==> the slowest tests:");
    for TestTime { seconds, program, test } in slowest(times) {
        eprintln!("{seconds:8.1} s  {program}  {test}");
    }
    eprintln!("{} passed, 0 failed", times.len());
}

fn slowest(times: &[TestTime]) -> Vec<TestTime> {
    let mut times = times.to_vec();
    times.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    times.truncate(SLOWEST);
    times
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_slowest_tests_come_first() {
        let job = Job {
            name: "synk".to_owned(),
            command: Command::new("true"),
        };
        let output = "running 3 tests\ntest a::b ... ok <0.010s>\nsaid by a test\ntest c ... FAILED <12.500s>\n\
            test d ... ignored\n\ntest result: FAILED. 1 passed; finished in 12.51s\n";
        let times = slowest(&TestTime::read(&job, output));
        let shown: Vec<_> = times.iter().map(|time| (time.test.as_str(), time.seconds)).collect();
        assert_eq!(shown, [("c", 12.5), ("a::b", 0.01)]);
    }
}
