//! The file of the tokens: damaged, foreign, open to others, and in a folder that cannot be written.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{eventually_ok, process, wildwest::SOON};

use crate::{
    developer::Developer,
    world::{RANCHERS, with_world},
};

/// Another user.
const NOBODY: u32 = 65_534;
/// Runs a command that finds the folder `$0` on a read-only disk. Modes would not keep root from writing, as whom suites run.
const READ_ONLY: &str = r#"mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@""#;

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

#[test]
fn a_file_that_is_damaged_foreign_or_open_is_refused_with_the_mend() -> Result<()> {
    with_world(async |world| {
        for issuer in &world.issuers {
            let carl = Developer::new(world, issuer, "carl", &[RANCHERS]).await?;
            carl.log_in().await?;
            let file = carl.token_file()?;
            let name = file.display().to_string();
            let whole = fs::read(&file)?;
            for (length, mend) in [(0, "kubectl bind login"), (whole.len() / 2, "kubectl bind login")] {
                fs::write(&file, &whole[..length])?;
                let said = carl.fails(&["templates"], 3).await?;
                ensure!(
                    said.contains(&name) && said.contains("is damaged") && said.contains(mend),
                    "{said}"
                );
            }
            fs::write(&file, &whole)?;
            set_mode(&file, 0o640)?;
            let said = carl.fails(&["templates"], 3).await?;
            ensure!(said.contains(&format!("chmod 600 {name}")), "{said}");
            set_mode(&file, 0o600)?;
            chown(&file, Some(NOBODY), None)?;
            let said = carl.fails(&["templates"], 3).await?;
            ensure!(
                said.contains(&format!("{name} belongs to the user with ID {NOBODY}")),
                "{said}"
            );
            // A list of servers tells it, and shows the others.
            let listed = carl.ok(&["server", "list", "-o", "json"]).await?;
            ensure!(
                listed.contains("\"Unusable\"") && listed.contains("belongs to"),
                "{listed}"
            );
            chown(&file, Some(0), None)?;
            carl.ok(&["templates"]).await?;
            // A new login replaces what is damaged.
            fs::write(&file, "{")?;
            carl.log_in().await?;
            carl.ok(&["templates"]).await?;
        }
        Ok(())
    })
}

#[test]
fn a_login_that_cannot_be_written_lasts_as_long_as_its_token_and_is_not_spent() -> Result<()> {
    with_world(async |world| {
        for issuer in &world.issuers {
            let rhea = Developer::new(world, issuer, "rhea", &[RANCHERS]).await?;
            rhea.log_in().await?;
            let file = rhea.token_file()?;
            let folder = file.parent().context("a file is in a folder")?;
            let before = rhea.refresh_token()?;
            let read_only = async |args: &[&str]| {
                let wanted = rhea.command(args)?;
                let mut command = Command::new("unshare");
                command.args(["--mount", "sh", "-c", READ_ONLY]).arg(folder);
                command.arg(wanted.get_program()).args(wanted.get_args());
                for (name, value) in wanted.get_envs() {
                    match value {
                        Some(value) => command.env(name, value),
                        None => command.env_remove(name),
                    };
                }
                process::run(command, SOON).await
            };
            process::stdout(&read_only(&["templates"]).await?)?;
            eventually_ok("the token to expire", SOON, async || {
                let output = read_only(&["templates"]).await?;
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                ensure!(
                    output.status.code() == Some(3) && said.contains("cannot write"),
                    "{said}"
                );
                ensure!(said.contains("writable"), "{said}");
                Ok(())
            })
            .await?;
            ensure!(rhea.refresh_token()? == before, "the refresh token was spent");
            rhea.ok(&["templates"]).await?;
            ensure!(rhea.refresh_token()? != before, "the login was not refreshed");
        }
        Ok(())
    })
}
