//! The files that programs include without a copy of their own: the core library and the architectures.

/// The content of the file that `#include <name>` means; `None` if there is no such file.
///
/// A program's own include directories come first: a file there with the same name replaces this one.
pub fn find(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(file, _)| *file == name).map(|(_, text)| *text)
}

/// The files' names, for messages.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

const PSA: &str = include_str!("../include/psa.p4");

const FILES: &[(&str, &str)] = &[
    ("core.p4", include_str!("../include/core.p4")),
    ("v1model.p4", include_str!("../include/v1model.p4")),
    ("psa.p4", PSA),
    ("bmv2/psa.p4", PSA),
    ("dpdk/psa.p4", include_str!("../include/dpdk/psa.p4")),
    ("pna.p4", include_str!("../include/pna.p4")),
    ("dpdk/pna.p4", include_str!("../include/dpdk/pna.p4")),
    ("ebpf_model.p4", include_str!("../include/ebpf_model.p4")),
    ("ubpf_model.p4", include_str!("../include/ubpf_model.p4")),
    ("xdp_model.p4", include_str!("../include/xdp_model.p4")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_files_include_is_found() {
        for (name, text) in FILES {
            for line in text.lines().filter_map(|line| line.strip_prefix("#include ")) {
                let included = line.trim_matches(['<', '>', '"']);
                assert!(find(included).is_some(), "{name}: {line}");
            }
        }
    }

    #[test]
    fn conditions_are_closed() {
        for (name, text) in FILES {
            let count = |word: &str| text.lines().filter(|line| line.starts_with(word)).count();
            assert_eq!(count("#if"), count("#endif"), "{name}");
        }
    }

    #[test]
    fn other_names_are_not_found() {
        assert_eq!(find("tna.p4"), None);
        assert_eq!(find("../include/core.p4"), None);
    }
}
