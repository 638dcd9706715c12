//! The description of the logic, and its name in messages about unknown ones.

use logic::{LogicDescription, LogicError, ParamDescription, ParamKind};

use super::{BEHIND_LINK, CPU_PORT, DEFINE, FUNCTIONS, INCLUDE, LINK, LOGIC, P4INFO, XDP, is_p4};
use crate::suggest;

/// Describes the logic.
pub(crate) fn describe() -> LogicDescription {
    LogicDescription {
        name: LOGIC.into(),
        summary: "a P4 program, of a file (p4:FILE) or from a P4Runtime controller; set up by `[bridge.p4]`".into(),
        params: vec![
            ParamDescription::new(
                CPU_PORT,
                ParamKind::Number { min: 1, max: u32::MAX.into(), unit: String::new() },
                "P4 port number of the controllers: packets sent to it become PacketIn, PacketOut comes from it",
            )
            .optional("510, or 4294967293 for PSA"),
            ParamDescription::new(
                LINK,
                ParamKind::Number { min: 1, max: u16::MAX.into(), unit: String::new() },
                "P4 port number of the port that leads to other line cards",
            )
            .optional("none"),
            ParamDescription::new(
                BEHIND_LINK,
                text(),
                "P4 port numbers of ports on other line cards, such as `3-4,8`; what is sent to them leaves through `link`",
            )
            .optional("none"),
            ParamDescription::new(
                XDP,
                ParamKind::Switch,
                "interfaces with AF_XDP sockets run the program in the kernel; packets that need more go to the workers",
            )
            .optional("off"),
            ParamDescription::new(INCLUDE, text(), "folders of included files, with `:` between them")
                .optional("the folder of the program's file"),
            ParamDescription::new(DEFINE, text(), "macros such as `DEBUG` or `SIZE=64`, with `,` between them")
                .optional("none"),
            ParamDescription::new(FUNCTIONS, text(), "native module with the functions that programs declare as `extern`")
                .optional("none"),
            ParamDescription::new(P4INFO, text(), "P4Info of a program that p4c has compiled for BMv2 to JSON")
                .optional("none: the program is P4 source text"),
        ],
        commands: p4logic::commands(),
        ..LogicDescription::default()
    }
}

fn text() -> ParamKind {
    ParamKind::Text { max: 4096 }
}

/// Adds the logic to the known ones of an error, or says why it cannot be used there.
pub(crate) fn with_p4(error: LogicError) -> LogicError {
    match error {
        LogicError::UnknownLogic { name, nearest, mut known } => {
            known.insert((logic::LIST.len() + 1).min(known.len()), LOGIC.into());
            let nearest = nearest.or_else(|| suggest::nearest(&name, &[LOGIC]).map(str::to_owned));
            LogicError::UnknownLogic { name, nearest, known }
        }
        LogicError::Stage { number, error } => {
            let error = match *error {
                LogicError::UnknownLogic { name, .. } if is_p4(&name) => LogicError::Module {
                    file: name,
                    message: "it cannot be a stage of a chain; set it as the logic of a bridge of its own"
                        .into(),
                },
                other => other,
            };
            LogicError::Stage { number, error: Box::new(error) }
        }
        other => other,
    }
}
