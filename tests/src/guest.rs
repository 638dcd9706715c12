//! Guests: Debian's cloud kernel with a busybox initial ram disk, under QEMU without hardware acceleration (TCG); they
//! boot in a few seconds. A guest runs a shell script of busybox; its output is the console.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;

use crate::command::{Running, output, succeeded};
use crate::qmp::Qmp;
use crate::{Error, Result, until};

/// Modules that virtio-net requires, in load order; a kernel has no module for built-in drivers.
const MODULES: [&str; 8] = [
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci",
    "drivers/net/virtio_net",
];

/// A guest with a vhost-user network device, eth0. Drop ends it.
#[derive(Debug)]
pub struct Guest {
    process: Running,
    folder: tempfile::TempDir,
}

/// Configuration of a guest.
#[derive(Debug, Clone, Default)]
pub struct GuestConfig {
    /// The vhost-user socket of its device.
    pub socket: PathBuf,
    /// Whether QEMU listens on that socket; otherwise it connects, and reconnects each second after a loss.
    pub listens: bool,
    /// The device's MAC address.
    pub mac: String,
    /// The script that it runs before it powers off.
    pub script: String,
    /// Size of its memory.
    pub megabytes: u32,
    /// Size of memory that can be [plugged in](Guest::plug_memory).
    pub more_megabytes: u32,
    /// Further options of `virtio-net-pci`, such as `packed=on`.
    pub device: String,
    /// Whether it restarts on a reboot; otherwise it ends.
    pub reboots: bool,
    /// Whether it waits for another guest to [migrate](Guest::migrate) here, instead of booting.
    pub incoming: bool,
}

/// A completed live migration.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// Downtime of the guest, measured by QEMU.
    pub downtime: Duration,
    /// Total time.
    pub total: Duration,
}

impl Guest {
    /// Boots a guest.
    pub fn start(config: &GuestConfig) -> Result<Guest> {
        let folder = tempfile::Builder::new().prefix("mswitch-guest-").tempdir()?;
        let (kernel, disk) = boot_files(folder.path(), &config.script)?;
        let GuestConfig { socket, mac, megabytes, device, .. } = config;
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-accel", "tcg", "-cpu", "max", "-nographic", "-nodefaults", "-serial", "stdio"]);
        let slots = match config.more_megabytes {
            0 => String::new(),
            more => format!(",slots=1,maxmem={}M", megabytes + more + 1),
        };
        // QEMU 7.2 can lose writes of a translated guest during migration if a memory block is a multiple of 256 KiB:
        // clearing many dirty bits at once leaves translations that set none.
        let size = format!("{}k", megabytes * 1024 + 8);
        command.args(["-m", &format!("{size}{slots}")]);
        command.arg("-kernel").arg(kernel).arg("-initrd").arg(disk);
        command.args(["-append", "console=ttyS0 panic=-1 quiet"]);
        // The switch maps the guest's memory.
        command.args(["-object", &format!("memory-backend-memfd,id=m,size={size},share=on")]);
        command.args(["-numa", "node,memdev=m"]);
        if !config.reboots {
            command.arg("-no-reboot");
        }
        let role = if config.listens { "server=on,wait=off" } else { "reconnect=1" };
        command.args(["-chardev", &format!("socket,id=c,path={},{role}", socket.display())]);
        command.args(["-netdev", "vhost-user,id=n,chardev=c"]);
        // Without KVM, QEMU 7.2 crashes on the device's MSI-X.
        command.args(["-device", &format!("virtio-net-pci,netdev=n,vectors=0,mac={mac}{device}")]);
        let in_folder = |name| folder.path().join(name).display().to_string();
        command.args(["-qmp", &format!("unix:{},server=on,wait=off", in_folder("monitor"))]);
        if config.incoming {
            command.args(["-incoming", &format!("unix:{}", in_folder("incoming"))]);
        }
        let console = File::create(folder.path().join("console"))?;
        command.stdin(Stdio::null()).stdout(console.try_clone()?).stderr(console);
        Ok(Guest { process: Running::start(&mut command)?, folder })
    }

    /// Connects to QEMU's monitor, which serves one connection at a time.
    pub fn monitor(&mut self) -> Result<Qmp> {
        let path = self.folder.path().join("monitor");
        until("QEMU's monitor", Duration::from_secs(60), || match self.process.ended()? {
            Some(status) => Err(Error(format!("the guest ended, {status}; its console: {}", self.console()))),
            None => Ok(Qmp::connect(&path).ok()),
        })
    }

    /// Plugs in memory.
    pub fn plug_memory(&mut self, megabytes: u64) -> Result<()> {
        let mut monitor = self.monitor()?;
        let memory = json!({ "qom-type": "memory-backend-memfd", "id": "more", "size": megabytes << 20, "share": true });
        monitor.run("object-add", memory)?;
        monitor.run("device_add", json!({ "driver": "pc-dimm", "id": "dimm", "memdev": "more" }))?;
        Ok(())
    }

    /// Migrates the running guest to a QEMU that waits for it. This QEMU stays paused afterwards.
    pub fn migrate(&mut self, to: &mut Guest, limit: Duration) -> Result<Migration> {
        // Without the return path, the downtime leaves out the time at the destination before the guest resumes.
        let capabilities = json!({ "capabilities": [
            { "capability": "events", "state": true },
            { "capability": "return-path", "state": true },
        ]});
        // A destination that answers its monitor is ready for a guest.
        to.monitor()?.run("migrate-set-capabilities", capabilities.clone())?;
        let mut monitor = self.monitor()?;
        // If the guest has just arrived here, that migration ends shortly after the guest resumes.
        until("the earlier migration to end", limit, || {
            let reply = monitor.run("query-migrate", json!({}))?;
            Ok((reply["status"] != "active").then_some(()))
        })?;
        monitor.run("migrate-set-capabilities", capabilities)?;
        // Bytes a second, above any possible rate.
        monitor.run("migrate-set-parameters", json!({ "max-bandwidth": 1u64 << 33 }))?;
        let uri = format!("unix:{}", to.folder.path().join("incoming").display());
        monitor.run("migrate", json!({ "uri": uri }))?;
        let status = monitor.event("MIGRATION", limit, |data| {
            let status = data["status"].as_str().unwrap_or_default();
            ["completed", "failed", "cancelled"].contains(&status).then(|| status.to_owned())
        })?;
        if status != "completed" {
            let reply = monitor.run("query-migrate", json!({}))?;
            return Err(Error(format!(
                "the migration {status}: {reply}; destination's console: {}",
                to.console()
            )));
        }
        // The times are known shortly after completion.
        until("QEMU to report the migration's times", limit, || {
            let reply = monitor.run("query-migrate", json!({}))?;
            let milliseconds = |key: &str| Duration::from_millis(reply[key].as_u64().unwrap_or(0));
            let (downtime, total) = (milliseconds("downtime"), milliseconds("total-time"));
            Ok((!total.is_zero()).then_some(Migration { downtime, total }))
        })
    }

    /// Console output so far.
    pub fn console(&self) -> String {
        let bytes = fs::read(self.folder.path().join("console")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the guest prints a line with `text`; returns its rest. Firmware puts escape sequences in front.
    pub fn wait_for(&mut self, text: &str, limit: Duration) -> Result<String> {
        let found = until(&format!("the guest to print `{text}`"), limit, || {
            let console = self.console();
            // The last line may still grow.
            let whole = console.rsplit_once('\n').map_or("", |(whole, _)| whole);
            let rest = whole.lines().find_map(|line| line.split_once(text));
            let line = rest.map(|(_, rest)| rest.trim().to_owned());
            match (line, self.process.ended()?) {
                (None, Some(status)) => Err(Error(format!("the guest ended, {status}"))),
                (line, _) => Ok(line),
            }
        });
        found.map_err(|error| Error(format!("{error}; its console: {}", self.console())))
    }
}

/// Boot files of a guest that runs this script: a kernel, and an initial ram disk created in the folder.
pub fn boot_files(folder: &Path, script: &str) -> Result<(PathBuf, PathBuf)> {
    let kernel = kernel()?;
    let disk = ram_disk(folder, &kernel, script)?;
    Ok((kernel.join("vmlinuz"), disk))
}

/// Folder with the kernel, `vmlinuz`, and its modules, downloaded from Debian once and kept beside the programs.
fn kernel() -> Result<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _lock = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let this = std::env::current_exe()?;
    let target = this.ancestors().nth(2).ok_or_else(|| Error::new("no folder for the guest's kernel"))?;
    let target_folder = target.join("guest-kernel");
    if target_folder.exists() {
        return Ok(target_folder);
    }
    // Prepared in a temporary folder: an interrupted download leaves nothing that looks complete.
    let fresh = tempfile::Builder::new().prefix("guest-kernel-").tempdir_in(target)?;
    let depends = match output("apt-cache", &["depends", "linux-image-cloud-amd64"]) {
        Ok(depends) => depends,
        // The package lists have never been downloaded.
        Err(_) => {
            output("apt-get", &["update", "-q"])?;
            output("apt-cache", &["depends", "linux-image-cloud-amd64"])?
        }
    };
    let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let package = package.ok_or_else(|| Error::new("Debian has no linux-image-cloud-amd64"))?;
    let mut fetch = Command::new("apt-get");
    succeeded("apt-get", fetch.args(["download", "-q", package]).current_dir(fresh.path()).output()?)?;
    let archive = find(fresh.path(), ".deb")?;
    let tree = fresh.path().join("tree");
    output("dpkg", &[Path::new("-x"), &archive, &tree])?;
    let folder = fresh.path().join("folder");
    fs::create_dir(&folder)?;
    fs::rename(find(&tree.join("boot"), "vmlinuz")?, folder.join("vmlinuz"))?;
    let modules = find(&tree.join("lib/modules"), "")?.join("kernel");
    for module in MODULES {
        let file = modules.join(format!("{module}.ko"));
        if let (true, Some(name)) = (file.exists(), file.file_name()) {
            fs::copy(&file, folder.join(name))?;
        }
    }
    fs::rename(&folder, &target_folder)?;
    Ok(target_folder)
}

/// Entry of a folder whose name contains this text.
fn find(folder: &Path, part: &str) -> Result<PathBuf> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().contains(part) {
            return Ok(entry.path());
        }
    }
    Err(Error(format!("no entry of {} contains `{part}` in its name", folder.display())))
}

/// Creates the initial ram disk: busybox, the modules and the init script.
fn ram_disk(folder: &Path, kernel: &Path, script: &str) -> Result<PathBuf> {
    let root = folder.join("root");
    for part in ["bin", "proc", "sys", "dev", "tmp"] {
        fs::create_dir_all(root.join(part))?;
    }
    fs::copy("/bin/busybox", root.join("bin/busybox"))?;
    let mut init = String::from(
        "#!/bin/busybox sh\nexport PATH=/bin\n/bin/busybox --install -s /bin\n\
         mount -t proc none /proc\nmount -t sysfs none /sys\nmount -t devtmpfs none /dev\n",
    );
    for module in MODULES {
        let name = module.rsplit('/').next().unwrap_or(module).to_owned() + ".ko";
        if kernel.join(&name).exists() {
            fs::copy(kernel.join(&name), root.join(&name))?;
            init += &format!("insmod /{name}\n");
        }
    }
    init += "while [ ! -e /sys/class/net/eth0 ]; do sleep 0.1; done\n";
    init += &format!("{script}\npoweroff -f\n");
    fs::write(root.join("init"), init)?;
    fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755))?;
    let disk = folder.join("initrd");
    let pack = format!("find . | cpio -o -H newc --quiet >'{}'", disk.display());
    succeeded("cpio", Command::new("sh").args(["-c", &pack]).current_dir(&root).output()?)?;
    Ok(disk)
}
