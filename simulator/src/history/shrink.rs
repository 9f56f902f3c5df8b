//! Shortens a history that shows a violation, by delta debugging: removes events as long as the violation stays.

use super::{History, HistoryEvent};

/// Returns the shortest history found with at most `runs_max` runs. `fails` runs a history and tells whether it still shows the
/// violation; it is never called with the history that is given, which is known to fail.
pub fn shrink(history: &History, runs_max: usize, mut fails: impl FnMut(&History) -> bool) -> History {
    let mut best = history.clone();
    let mut left = runs_max;
    let mut parts = 2;
    while best.events.len() > 1 && left > 0 {
        let length = best.events.len();
        parts = parts.min(length);
        let mut found = None;
        for part in 0..parts {
            if left == 0 {
                break;
            }
            let shorter = without(&best, part * length / parts..(part + 1) * length / parts);
            left -= 1;
            if fails(&shorter) {
                found = Some(shorter);
                break;
            }
        }
        match found {
            Some(shorter) => {
                best = shorter;
                parts = (parts - 1).max(2);
            }
            // Single events were tried, and each is needed.
            None if parts == length => break,
            None => parts = (parts * 2).min(length),
        }
    }
    best
}

/// The history without the events of these positions.
fn without(history: &History, positions: std::ops::Range<usize>) -> History {
    let kept = |(at, _): &(usize, &HistoryEvent)| !positions.contains(at);
    History {
        events: history
            .events
            .iter()
            .enumerate()
            .filter(kept)
            .map(|(_, event)| *event)
            .collect(),
        ..history.clone()
    }
}
