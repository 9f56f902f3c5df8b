//! Asks the user whether the provider's claims may take effect, and whether something ends.

use std::io::{IsTerminal as _, Write as _};

use bindery_api::v1alpha2::PermissionClaim;

use crate::{
    claims::{Decision, Question, Verdict, explained, is_plain_yes, is_yes, verdict},
    errors::Failure,
    provider::offer::Offer,
    render::{output::printable, steps::Steps},
    text::joined,
};

/// Prints what claims select and what accepting them means.
pub(super) fn explain<'a>(claims: impl IntoIterator<Item = &'a PermissionClaim>, steps: &Steps) {
    for claim in claims {
        let lines = explained(claim).into_iter().enumerate();
        for (index, line) in lines {
            steps.note(&if index == 0 { format!("claims {line}") } else { line });
        }
    }
}

/// Prints the claims of an offer, which of them are rejected, and which namespaces they concern: those that `spec.claimNamespaces` of the
/// binding lists.
pub(super) fn explain_offer(offer: &Offer, decision: &Decision, namespaces: &[String], steps: &Steps) {
    for claim in &offer.claims {
        explain([claim], steps);
        if decision.rejected.contains(&claim.group_resource) {
            steps.note("which is rejected: nothing of it is read or written");
        }
    }
    if !decision.accepted.is_empty() {
        steps.note(&concerns(namespaces));
    }
}

/// Tells which namespaces claims concern.
fn concerns(namespaces: &[String]) -> String {
    if namespaces.is_empty() {
        "the provider's objects come only into namespaces that have an object of the bound API, and the konnector gets rights on claimed \
         objects of the whole cluster; --claim-namespace limits the claims and these rights to the namespaces that it lists"
            .to_owned()
    } else {
        format!(
            "claims concern objects in namespaces {} alone, and the konnector gets rights on claimed objects only there",
            joined(namespaces)
        )
    }
}

/// Asks the user, unless a flag has answered. `who` claims `what`; `undone` says in the error what did not happen.
pub(super) fn ask(question: Question, answered: bool, (who, what): (&str, &str), undone: &str) -> Result<(), Failure> {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    match verdict(question, answered, is_terminal) {
        Verdict::Proceed => Ok(()),
        Verdict::Refuse => Err(Failure::NotAccepted(who.to_owned())),
        Verdict::Ask if is_yes(question, &answer(question, who, what)?) => Ok(()),
        Verdict::Ask => Err(Failure::Declined(undone.to_owned())),
    }
}

/// Asks the user for a yes, unless a flag has answered. `what` says what ends, `question` how.
pub(super) fn confirm(what: &str, question: &str, answered: bool) -> Result<(), Failure> {
    if answered {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::Usage(format!(
            "{what} end only after a yes, and there is no terminal to ask on; add --yes"
        )));
    }
    let mut terminal = std::io::stderr().lock();
    write!(terminal, "{what}. {question}? [y/N] ")?;
    terminal.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if is_plain_yes(&answer) {
        return Ok(());
    }
    Err(Failure::OrphansStay(what.to_owned()))
}

fn answer(question: Question, who: &str, what: &str) -> Result<String, Failure> {
    let text = match question {
        Question::Everything => {
            format!("{who} claims EVERY Secret of this cluster. Type yes to let the provider have them all: ")
        }
        Question::Nothing | Question::Claims => format!("Accept the claims of {who} on {what}? [y/N] "),
    };
    let mut terminal = std::io::stderr().lock();
    write!(terminal, "{}", printable(&text))?;
    terminal.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(answer)
}
