//! The reference has the texts of the code, in its order.

use crate::check::Check;

const PAGE: &str = include_str!("../../../../docs/reference/check.md");

/// The section of one check, as the page has it.
fn section(check: Check) -> String {
    format!("### {}\n\n{}\n\nMend: {}\n", check.id(), check.looks_at(), check.mend())
}

#[test]
fn the_page_has_every_check_with_its_texts() {
    let missing: Vec<_> = Check::ALL
        .iter()
        .copied()
        .filter(|check| !PAGE.contains(&section(*check)))
        .collect();
    let texts: String = missing.iter().copied().map(section).collect();
    assert!(
        missing.is_empty(),
        "these sections are missing, or have other texts:\n\n{texts}"
    );
}

#[test]
fn the_page_has_no_other_checks_and_keeps_their_order() {
    let ids = |text: &str| text.strip_prefix("### ").map(str::to_owned);
    let on_page: Vec<_> = PAGE.lines().filter_map(ids).collect();
    let in_code: Vec<_> = Check::ALL.iter().map(|check| check.id().to_owned()).collect();
    assert_eq!(on_page, in_code);
    let mut groups: Vec<_> = Check::ALL.iter().map(|check| check.group().title()).collect();
    groups.dedup();
    let headings: Vec<_> = PAGE.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(headings, groups);
}
