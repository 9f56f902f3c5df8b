//! Runs a program in the root of an image, as a container runtime does it.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use bindery_image::Image;

/// Runs what it is given, and ends with its exit code, which is 128 and the number of the signal for one that a signal ended.
///
/// The first child is process 1 of the namespace. `unshare --fork` does not tell of signals in all its versions.
const PARENT: &str = r#""$@"; exit "$?""#;

/// Makes the mounts and becomes the program, as process 1: the kernel keeps signals from it for which it has no handler. Its
/// arguments are the root, what is mounted, `--`, and the command.
///
/// The namespace of the mounts ends with the program.
const SCRIPT: &str = r#"
set -eu
root=$1; shift
mount --bind "$root" "$root"
mount -t proc -o ro,nosuid,nodev,noexec proc "$root/proc"
mount -t tmpfs -o mode=755,size=64k,nosuid,noexec dev "$root/dev"
for device in null zero full random urandom; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
while [ "$1" != -- ]; do
    mount --bind "$1" "$root$2"
    mount -o "remount,bind,$3,nosuid,nodev" "$root$2"
    shift 3
done
shift
mount -o remount,bind,ro,nosuid "$root"
exec "$@"
"#;

/// The namespaces that a container has of its own, as `unshare` is told. Those of the mounts are not seen outside.
const NAMESPACES: [&str; 5] = ["--mount", "--propagation", "private", "--ipc", "--pid"];

/// Folders that each container needs to mount on.
const MOUNT_POINTS: [&str; 2] = ["proc", "dev"];

/// A program in the root of an image. The root is read-only.
#[derive(Clone, Debug)]
pub struct Container {
    /// The unpacked image. Mount points that it lacks are made in it.
    pub root: PathBuf,
    /// The numbers of user and group.
    pub user: (u32, u32),
    /// The numbers of the groups beside that of the user.
    pub groups: Vec<u32>,
    /// The whole environment of the program.
    pub env: BTreeMap<String, String>,
    /// What else is in the root.
    pub mounts: Vec<Mount>,
    /// The program, by its path or its name in `PATH` of `env`, and its arguments.
    pub args: Vec<String>,
}

/// A file or folder of this machine in the root of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The path on this machine.
    pub source: PathBuf,
    /// The absolute path in the container.
    pub target: String,
    /// Whether the program may write to it.
    pub is_writable: bool,
}

impl Container {
    /// The program of an image that is unpacked at `root`, as its configuration says, with `args` behind its entrypoint.
    pub fn of(image: &Image, root: &Path, args: &[&str]) -> Result<Self> {
        let config = image
            .configuration()
            .config()
            .as_ref()
            .context("the image has no configuration")?;
        let user = config.user().as_deref().and_then(numbers);
        let env = config.env().iter().flatten().filter_map(|it| it.split_once('='));
        let entrypoint = config.entrypoint().iter().flatten().cloned();
        Ok(Self {
            root: root.to_owned(),
            groups: Vec::new(),
            user: user.context("the image names no user by its numbers, such as 65532:65532")?,
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            mounts: Vec::new(),
            args: entrypoint.chain(args.iter().map(|arg| (*arg).to_owned())).collect(),
        })
    }

    /// Returns the command that runs the program as process 1 of a namespace, and ends as it does; [`program`] finds its process. It
    /// runs in the network of the thread that starts it; only root may.
    pub fn command(&self) -> Result<Command> {
        for folder in MOUNT_POINTS {
            make_folders(&self.root.join(folder))?;
        }
        let mut command = Command::new("unshare");
        command
            .args(NAMESPACES)
            .args(["sh", "-c", PARENT, "sh", "sh", "-c", SCRIPT, "sh"]);
        command.arg(&self.root);
        for mount in &self.mounts {
            mount.prepare(&self.root)?;
            let mode = if mount.is_writable { "rw" } else { "ro" };
            command.arg(&mount.source).args([mount.target.as_str(), mode]);
        }
        ensure!(!self.args.is_empty(), "a container without a program");
        command.args(["--", "env", "-i"]);
        command.args(self.env.iter().map(|(name, value)| format!("{name}={value}")));
        // By their paths: the variable PATH is that of the container here.
        command.arg(find("setpriv")?).arg("--no-new-privs");
        let (user, group) = self.user;
        command.arg(find("chroot")?);
        let groups: Vec<_> = [group].iter().chain(&self.groups).map(u32::to_string).collect();
        command.args([
            format!("--userspec={user}:{group}"),
            format!("--groups={}", groups.join(",")),
        ]);
        command.arg(&self.root).args(&self.args);
        Ok(command)
    }
}

impl Mount {
    /// Mounts for reading.
    pub fn read_only(source: impl Into<PathBuf>, target: &str) -> Self {
        Self {
            source: source.into(),
            target: target.to_owned(),
            is_writable: false,
        }
    }

    /// Makes the mount point.
    fn prepare(&self, root: &Path) -> Result<()> {
        let Some(target) = self.target.strip_prefix('/') else {
            bail!("mount path {:?} is not absolute", self.target);
        };
        let target = root.join(target);
        if self.source.is_dir() {
            make_folders(&target)
        } else if target.exists() {
            Ok(())
        } else {
            let parent = target.parent().map_or(Ok(()), make_folders);
            parent.and_then(|()| File::create(&target).map(drop))
        }
        .with_context(|| format!("cannot mount on {}", target.display()))
    }
}

/// Makes a folder and those above it, so that every user may enter those that are new, whatever the umask is.
fn make_folders(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    path.parent().map_or(Ok(()), make_folders)?;
    match fs::create_dir(path) {
        // Another container of the image may need it too.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        outcome => outcome.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755))),
    }
}

/// Fails if this machine does not let the tests run containers.
pub fn are_possible() -> Result<()> {
    let mut probe = Command::new("unshare");
    // Nobody outside of the namespaces sees this mount.
    probe
        .args(NAMESPACES)
        .args(["--net", "sh", "-c", "mount -t tmpfs probe /tmp"]);
    let output = probe.output().context("cannot run unshare; install util-linux")?;
    ensure!(
        output.status.success(),
        "containers need namespaces and mounts, which this user may not make: run the tests as root with the capability \
         CAP_SYS_ADMIN (`docker run --privileged`): {}",
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(())
}

/// Returns the id of the program's process, given that of a [`Container::command`] that runs. There is none at the very start.
pub fn program(command: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{command}/task/{command}/children")).ok()?;
    let mut ids = children.split_whitespace().filter_map(|id| id.parse().ok());
    ids.find(|id| is_first_of_namespace(*id))
}

/// Whether a process is the first of a namespace of process ids below that of the tests.
fn is_first_of_namespace(id: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    // Its ids, from that in this namespace to that in its own.
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    ids.is_some_and(|ids| ids.split_whitespace().skip(1).last() == Some("1"))
}

/// Reads user and group as in `65532:65532`.
fn numbers(user: &str) -> Option<(u32, u32)> {
    let (user, group) = user.split_once(':')?;
    Some((user.parse().ok()?, group.parse().ok()?))
}

/// Returns the path of a program of this machine.
fn find(name: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Programs for administrators are not in every user's PATH.
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let mut paths = folders.map(|folder| folder.join(name));
    paths
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not in PATH; install coreutils and util-linux"))
}
