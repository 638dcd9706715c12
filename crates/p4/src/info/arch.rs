//! Names by which architectures call what P4Runtime knows.

use crate::hir::{Package, Program, Type};

/// Kinds of extern objects that P4Info lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    DirectCounter,
    Meter,
    DirectMeter,
    Register,
    ActionProfile,
    ActionSelector,
    Digest,
}

/// An extern type of an architecture.
#[derive(Debug)]
pub(super) struct ExternType {
    /// Name.
    name: &'static str,
    /// What its objects are.
    pub(super) kind: Kind,
    /// Position of the constructor's parameter for the size.
    pub(super) size: usize,
    /// Position of the constructor's parameter for what is counted.
    pub(super) unit: usize,
    /// Position of the type parameter for the index.
    pub(super) index: Option<usize>,
}

impl ExternType {
    const fn new(name: &'static str, kind: Kind, size: usize, unit: usize, index: Option<usize>) -> Self {
        Self { name, kind, size, unit, index }
    }
}

/// An architecture.
#[derive(Debug)]
pub(super) struct Arch {
    /// Name of the package type that programs instantiate as `main`.
    package: &'static str,
    /// Name in P4Info.
    pub(super) name: &'static str,
    /// Table property that names the action profile or selector.
    pub(super) implementation: &'static str,
    /// Table property that names the direct counter.
    pub(super) counter: &'static str,
    /// Table property that names the direct meter.
    pub(super) meter: &'static str,
    /// Table property that asks for notifications of idle entries.
    pub(super) idle_timeout: &'static str,
    /// Extern function that sends a digest.
    pub(super) digest_function: Option<&'static str>,
    externs: &'static [ExternType],
}

impl Arch {
    /// What an extern type is.
    pub(super) fn extern_type(&self, name: &str) -> Option<&'static ExternType> {
        self.externs.iter().find(|ty| ty.name == name)
    }
}

const V1MODEL: Arch = Arch {
    package: "V1Switch",
    name: "v1model",
    implementation: "implementation",
    counter: "counters",
    meter: "meters",
    idle_timeout: "support_timeout",
    digest_function: Some("digest"),
    externs: &[
        ExternType::new("counter", Kind::Counter, 0, 1, None),
        ExternType::new("direct_counter", Kind::DirectCounter, 0, 0, None),
        ExternType::new("meter", Kind::Meter, 0, 1, None),
        ExternType::new("direct_meter", Kind::DirectMeter, 0, 0, None),
        ExternType::new("register", Kind::Register, 0, 0, None),
        ExternType::new("action_profile", Kind::ActionProfile, 0, 0, None),
        ExternType::new("action_selector", Kind::ActionSelector, 1, 0, None),
    ],
};

/// Extern types that PSA and PNA have in common.
const PORTABLE: &[ExternType] = &[
    ExternType::new("Counter", Kind::Counter, 0, 1, Some(1)),
    ExternType::new("DirectCounter", Kind::DirectCounter, 0, 0, None),
    ExternType::new("Meter", Kind::Meter, 0, 1, Some(0)),
    ExternType::new("DirectMeter", Kind::DirectMeter, 0, 0, None),
    ExternType::new("Register", Kind::Register, 0, 0, Some(1)),
    ExternType::new("ActionProfile", Kind::ActionProfile, 0, 0, None),
    ExternType::new("ActionSelector", Kind::ActionSelector, 1, 0, None),
    ExternType::new("Digest", Kind::Digest, 0, 0, None),
];

const PSA: Arch = Arch {
    package: "PSA_Switch",
    name: "psa",
    implementation: "psa_implementation",
    counter: "psa_direct_counter",
    meter: "psa_direct_meter",
    idle_timeout: "psa_idle_timeout",
    digest_function: None,
    externs: PORTABLE,
};

const PNA: Arch = Arch {
    package: "PNA_NIC",
    name: "pna",
    implementation: "pna_implementation",
    counter: "pna_direct_counter",
    meter: "pna_direct_meter",
    idle_timeout: "pna_idle_timeout",
    digest_function: None,
    externs: PORTABLE,
};

/// uBPF programs have registers like those of PSA, nothing else that a controller can address but tables.
const UBPF: Arch = Arch { package: "ubpf", name: "ubpf", ..PSA };

/// Any other architecture: only tables, actions and value sets.
const OTHER: Arch = Arch {
    package: "",
    name: "",
    implementation: "",
    counter: "",
    meter: "",
    idle_timeout: "",
    digest_function: None,
    externs: &[],
};

/// The architecture of a program.
pub(super) fn of(program: &Program) -> &'static Arch {
    const ALL: [&Arch; 4] = [&V1MODEL, &PSA, &PNA, &UBPF];
    let package = package(program).map_or("", |package| &package.name);
    ALL.into_iter().find(|arch| arch.package == package).unwrap_or(&OTHER)
}

/// The package type that a program instantiates as `main`.
pub(super) fn package(program: &Program) -> Option<&Package> {
    match program.instances.get(program.main?.index())?.ty {
        Type::Package(id) => program.packages.get(id.index()),
        _ => None,
    }
}
