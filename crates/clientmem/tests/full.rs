//! The limit on the number of regions. Alone in its process, because it uses all of them.
#![allow(clippy::unwrap_used)]

use std::os::fd::AsFd;

use clientmem::{MapError, Region};

#[test]
fn more_regions_than_the_handler_knows_are_refused() {
    let (first, fd) = Region::create("test", 4096).unwrap();
    let mut regions = vec![first];
    let error = loop {
        match Region::map(fd.as_fd(), 4096) {
            Ok(region) => regions.push(region),
            Err(e) => break e,
        }
    };
    assert!(matches!(error, MapError::TableFull), "{error}");
    assert_eq!(
        error.to_string(),
        format!("{} regions are already mapped, which is the limit", regions.len())
    );
    regions.pop();
    assert!(Region::map(fd.as_fd(), 4096).is_ok());
}
