//! Files that programs include: searched, read once, and counted.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::include;
use crate::source::{FileId, Sources};

/// Most bytes of one file, and of all includes together.
const MOST_BYTES: usize = 16 << 20;
/// Most includes, a file counted as often as it is included.
const MOST_INCLUDES: usize = 4096;

/// Files found so far, and what may still be read.
pub(super) struct Files<'a> {
    folders: &'a [PathBuf],
    found: HashMap<String, FileId>,
    includes: usize,
    bytes: usize,
}

/// Reasons for not including a file.
pub(super) struct NotIncluded {
    pub(super) message: String,
    pub(super) help: Option<String>,
    /// Whether the program exceeded a bound.
    pub(super) is_bound: bool,
}

impl<'a> Files<'a> {
    pub(super) fn new(folders: &'a [PathBuf]) -> Self {
        Self { folders, found: HashMap::new(), includes: 0, bytes: 0 }
    }

    /// Finds a file: in the folder of the file that includes it, in the folders for includes, among the embedded
    /// ones. Returns it with its folder.
    pub(super) fn find(
        &mut self,
        name: &str,
        folder: Option<&Path>,
        sources: &mut Sources,
    ) -> Result<(FileId, Option<PathBuf>), NotIncluded> {
        let (file, folder) = self.search(name, folder, sources)?;
        self.includes += 1;
        self.bytes += sources.get(file).map_or(0, |f| f.text.len());
        let bound = |message: String| NotIncluded { message, help: None, is_bound: true };
        if self.includes > MOST_INCLUDES {
            return Err(bound(format!("more than {MOST_INCLUDES} includes")));
        }
        if self.bytes > MOST_BYTES {
            return Err(bound(format!("included files have more than {MOST_BYTES} bytes")));
        }
        Ok((file, folder))
    }

    fn search(
        &mut self,
        name: &str,
        folder: Option<&Path>,
        sources: &mut Sources,
    ) -> Result<(FileId, Option<PathBuf>), NotIncluded> {
        // Joined to a folder, an absolute path would replace it.
        let folders = self.folders.iter().map(PathBuf::as_path).filter(|_| Path::new(name).is_relative());
        for folder in folder.into_iter().chain(folders) {
            let path = folder.join(name);
            let shown = path.display().to_string();
            let parent = path.parent().map(Path::to_path_buf);
            if let Some(&file) = self.found.get(&shown) {
                return Ok((file, parent));
            }
            match read(&path) {
                Ok(text) => {
                    let file = sources.add(shown.clone(), text);
                    self.found.insert(shown, file);
                    return Ok((file, parent));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let message = format!("file `{shown}` cannot be read: {error}");
                    return Err(NotIncluded { message, help: None, is_bound: false });
                }
            }
        }
        let Some(text) = include::find(name) else {
            let known: Vec<String> = include::names().map(|known| format!("`{known}`")).collect();
            return Err(NotIncluded {
                message: format!("file `{name}` is not found"),
                help: Some(format!("these need no folder for includes: {}", known.join(", "))),
                is_bound: false,
            });
        };
        let file =
            *self.found.entry(format!("<{name}>")).or_insert_with_key(|shown| sources.add(shown, text));
        Ok((file, None))
    }
}

/// Reads a regular file of bounded size. Bytes that are not UTF-8, as in old comments, are replaced.
pub(super) fn read(path: &Path) -> io::Result<String> {
    // Opening a pipe or a device could block.
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {MOST_BYTES} bytes")));
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}
