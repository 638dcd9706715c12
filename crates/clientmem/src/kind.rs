//! Kinds of files behind descriptors that a client sent.
//!
//! Invariant: nothing here can block, whatever the descriptor. A client may send a file of a FUSE server that it runs
//! itself, where even `fstat` and `fstatfs` wait for that server's answer. So these are only called after
//! `F_GET_SEALS`, which asks no file system, has shown that the file is a memory file.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, Stat, StatxFlags, fcntl_get_seals, fstat, fstatfs, statx};
use rustix::io::Errno;

use crate::MapError;

/// `f_type` of tmpfs, and of memfd files.
const TMPFS_MAGIC: u32 = 0x0102_1994;
/// `f_type` of hugetlbfs, and of memfd files created with `MFD_HUGETLB`.
const HUGETLBFS_MAGIC: u32 = 0x9584_58f6;

/// Properties of a file that may be mapped.
pub(crate) struct Mappable {
    /// Size of the file, bytes.
    pub(crate) file_size: u64,
    /// Granularity in which its pages can be mapped and replaced; a power of two.
    pub(crate) page_size: usize,
    /// Whether touching it may allocate pages that are not reserved.
    pub(crate) may_be_sparse: bool,
}

/// Checks that `fd` may be mapped: a regular file on tmpfs or hugetlbfs.
///
/// Every other file system is refused: a FUSE or NFS server, which can be the client itself, could leave a page fault
/// unanswered, and so block the thread that copies a packet.
pub(crate) fn mappable(fd: BorrowedFd<'_>) -> Result<Mappable, MapError> {
    // The kernel supports seals on files of exactly these two, and answers without asking a file server.
    match fcntl_get_seals(fd) {
        Ok(_) => {}
        Err(Errno::INVAL) => return Err(refuse(fd)),
        Err(e) => return Err(MapError::Inspect(e.into())),
    }
    let stat = fstat(fd).map_err(|e| MapError::Inspect(e.into()))?;
    let statfs = fstatfs(fd).map_err(|e| MapError::Inspect(e.into()))?;
    // The field's width differs between architectures; the magic numbers are 32 bits wide.
    let magic = statfs.f_type as u32;
    let page_size = match magic {
        // st_blksize of tmpfs may name a huge page although the mapping works in small ones.
        TMPFS_MAGIC => rustix::param::page_size(),
        HUGETLBFS_MAGIC => huge_page_size(&stat)?,
        _ => return Err(MapError::WrongFileSystem),
    };
    Ok(Mappable {
        file_size: u64::try_from(stat.st_size).unwrap_or(0),
        page_size,
        may_be_sparse: magic == TMPFS_MAGIC,
    })
}

fn huge_page_size(stat: &Stat) -> Result<usize, MapError> {
    usize::try_from(stat.st_blksize)
        .ok()
        .filter(|size| size.is_power_of_two() && *size >= rustix::param::page_size())
        .ok_or_else(|| MapError::Inspect(std::io::Error::other("hugetlbfs reports no usable huge page size")))
}

/// The reason for refusing a file that is not a memory file.
fn refuse(fd: BorrowedFd<'_>) -> MapError {
    // Without asking a file server: what the kernel knows suffices.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let Ok(stat) = statx(fd, c"", flags, StatxFlags::TYPE) else { return MapError::WrongFileSystem };
    let found = match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::RegularFile => return MapError::WrongFileSystem,
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Unknown => "an anonymous kernel object",
    };
    MapError::NotRegular { found }
}

/// Returns whether `fd` is an eventfd.
///
/// The kernel has no call for this; the name under `/proc/self/fd` tells. Without `/proc` the answer is `false`.
///
/// ```
/// use std::os::fd::AsFd;
/// let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
/// assert!(clientmem::is_eventfd(event.as_fd()));
/// assert!(!clientmem::is_eventfd(std::io::stdin().as_fd()));
/// # Ok::<(), rustix::io::Errno>(())
/// ```
pub fn is_eventfd(fd: BorrowedFd<'_>) -> bool {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    std::fs::read_link(link).is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
}
