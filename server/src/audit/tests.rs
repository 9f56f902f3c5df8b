use std::sync::mpsc as blocking;

use bindery_runtime::telemetry;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

/// An output that fails as long as it is full, and keeps what was written.
#[derive(Clone, Default)]
struct Disk {
    written: Arc<Mutex<Vec<u8>>>,
    full: Arc<Mutex<bool>>,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if *self.full.lock() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.written.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Disk {
    fn lines(&self) -> Vec<Value> {
        let text = String::from_utf8(self.written.lock().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn entry(name: &str) -> AuditEntry {
    AuditEntry {
        time: Timestamp::UNIX_EPOCH,
        request_id: "id-1".to_owned(),
        principal: Some(AuditPrincipal::new("jane", None, &["ranchers".to_owned()])),
        claimed_author: String::new(),
        peer: Some("192.0.2.7:4711".to_owned()),
        method: "BindingService/CreateBindableResourcesRequest".to_owned(),
        contract: "kube-bind-a".to_owned(),
        template: "cowboys".to_owned(),
        name: name.to_owned(),
        groups: Vec::new(),
        dry_run: false,
        decision: Decision::Refused,
        reason: "TEMPLATE_BIND_DENIED".to_owned(),
    }
}

fn counted(registry: &Registry, outcome: &str) -> u64 {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    let head = format!(r#"bindery_audit_lines_total{{outcome="{outcome}"}} "#);
    let value = text.lines().find_map(|line| line.strip_prefix(&head));
    value.map_or(0, |value| value.parse().unwrap())
}

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_line_says_who_did_what_and_why_not() {
    let (disk, mut registry) = (Disk::default(), telemetry::registry());
    let log = AuditLog::start(Box::new(disk.clone()), &mut registry).unwrap();
    log.record(|| entry("west\n{\"forged\": true}"));
    log.flush(SOON).await;
    assert_eq!(
        disk.lines(),
        [json!({
            "time": "1970-01-01T00:00:00Z", "requestId": "id-1", "peer": "192.0.2.7:4711",
            "principal": {"username": "jane", "groups": ["ranchers"]},
            "method": "BindingService/CreateBindableResourcesRequest", "contract": "kube-bind-a", "template": "cowboys",
            "name": "west\n{\"forged\": true}", "decision": "refused", "reason": "TEMPLATE_BIND_DENIED",
        })]
    );
    assert_eq!(counted(&registry, "written"), 1);
}

#[tokio::test]
async fn a_full_disk_is_counted_and_lines_are_written_again_once_it_has_room() {
    let (disk, mut registry) = (Disk::default(), telemetry::registry());
    let log = AuditLog::start(Box::new(disk.clone()), &mut registry).unwrap();
    *disk.full.lock() = true;
    for _ in 0..3 {
        log.record(|| entry("lost"));
    }
    log.flush(SOON).await;
    *disk.full.lock() = false;
    log.record(|| entry("kept"));
    log.flush(SOON).await;
    assert_eq!(disk.lines().len(), 1);
    assert_eq!((counted(&registry, "failed"), counted(&registry, "written")), (3, 1));
}

/// An output that takes nothing until it is told to.
struct Stuck(blocking::Receiver<()>);

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Goes on once the sender is dropped.
        let _ = self.0.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_output_that_hangs_holds_up_no_call_and_the_queue_has_an_end() {
    let mut registry = telemetry::registry();
    let (release, stuck) = blocking::channel();
    let log = AuditLog::start(Box::new(Stuck(stuck)), &mut registry).unwrap();
    let extra = 10;
    for _ in 0..=QUEUE_LENGTH + extra {
        log.record(|| entry("west"));
    }
    // The writer may have taken one.
    let dropped = counted(&registry, "dropped");
    assert!((extra as u64..=extra as u64 + 1).contains(&dropped), "{dropped}");
    drop(release);
    log.flush(SOON).await;
    assert_eq!(
        counted(&registry, "written") + dropped,
        (QUEUE_LENGTH + extra + 1) as u64
    );
}

#[tokio::test]
async fn a_line_above_the_rate_of_its_caller_is_counted_apart() {
    let mut registry = telemetry::registry();
    let log = AuditLog::start(Box::new(Disk::default()), &mut registry).unwrap();
    log.skip();
    assert_eq!((counted(&registry, "limited"), counted(&registry, "dropped")), (1, 0));
}

#[test]
fn each_loss_is_reported_at_once_and_then_once_a_minute() {
    let (lines, start) = (Lines::default(), Instant::now());
    let after = |seconds| start + Duration::from_secs(seconds);
    assert!(lines.is_due(Loss::Limited, start));
    assert!(lines.is_due(Loss::Failed, after(1)), "one loss hides another");
    assert!(!lines.is_due(Loss::Limited, after(59)));
    assert!(lines.is_due(Loss::Limited, after(60)));
    assert!(!lines.is_due(Loss::Limited, after(119)));
}

#[test]
fn a_principal_with_many_groups_makes_no_long_line() {
    let groups: Vec<_> = (0..10_000)
        .map(|number| format!("{number}{}", "g".repeat(9_000)))
        .collect();
    let principal = AuditPrincipal::new(&"é".repeat(5_000), None, &groups);
    assert_eq!((principal.groups.len(), principal.groups_omitted), (64, 9_936));
    assert!(serde_json::to_string(&principal).unwrap().len() < 70_000);
}

#[tokio::test]
async fn without_a_path_nothing_is_made() {
    let log = AuditLog::off();
    log.record(|| panic!("an entry is made"));
    log.flush(SOON).await;
}

#[test]
fn a_file_that_cannot_be_opened_says_so_and_a_new_one_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = std::env::temp_dir().join(format!("bindery-audit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut registry = telemetry::registry();
    let error = AuditLog::open(&folder, &mut registry).unwrap_err().to_string();
    assert!(
        error.contains("--audit-log-path") && error.contains(&*folder.to_string_lossy()),
        "{error}"
    );
    let path = folder.join("audit.log");
    AuditLog::open(&path, &mut registry).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::remove_dir_all(&folder).unwrap();
}
