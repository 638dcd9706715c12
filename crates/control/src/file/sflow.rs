//! `[sflow]`: sFlow export.

use super::report::{Context, Report};
use super::section::Section;
use crate::keys;
use crate::sflow::settings::{check_collectors, check_header, check_polling, check_sampling, parse_agent};
use crate::sflow::{Collector, SflowConfig, SflowError};

const COLLECTORS: &str = "a list of addresses such as [\"192.0.2.9\", \"[2001:db8::9]:6343\"]";

/// Reads the section, if it is present.
pub(super) fn read(root: &Section<'_>, report: &mut Report<'_>) -> Option<SflowConfig> {
    let (table, span) = root.table("sflow", "a table that begins with `[sflow]`", report)?;
    let section = Section { table, span, context: Context::default() };
    section.only(&keys::names(keys::SFLOW), report);
    let collectors = collectors(&section, report);
    // If the collectors are invalid, mistakes in the other keys are reported nevertheless.
    let placeholder = "192.0.2.0".parse().map(|collector| vec![collector]).unwrap_or_default();
    let mut config = SflowConfig::new(collectors.clone().unwrap_or(placeholder)).ok()?;
    if let Some((text, span)) = section.text("agent", "an IP address or `auto`", report) {
        match parse_agent(text) {
            Ok(agent) => config.agent = agent,
            Err(error) => report.add(&span, &section.context, format!("`agent`: {error}")),
        }
    }
    type Check = fn(i64) -> Result<u32, SflowError>;
    let numbers: [(&str, &mut u32, Check); 3] = [
        ("sampling", &mut config.sampling, check_sampling),
        ("polling", &mut config.polling, check_polling),
        ("header", &mut config.header, check_header),
    ];
    for (key, value, check) in numbers {
        let Some((number, span)) = section.integer(key, report) else { continue };
        match check(number) {
            Ok(number) => *value = number,
            Err(error) => report.add(&span, &section.context, format!("`{key}`: {error}")),
        }
    }
    collectors.map(|_| config)
}

fn collectors(section: &Section<'_>, report: &mut Report<'_>) -> Option<Vec<Collector>> {
    if section.value("collectors").is_none() {
        let message = format!("key `collectors` is missing; expected {COLLECTORS}");
        report.add(&section.span, &section.context, message);
    }
    let (texts, span) = section.each_text("collectors", COLLECTORS, report)?;
    let mut collectors = Vec::new();
    let mut invalid = false;
    for (text, span) in texts {
        match text.parse() {
            Ok(collector) => collectors.push(collector),
            Err(error) => {
                invalid = true;
                report.add(&span, &section.context, format!("`collectors`: {error}"));
            }
        }
    }
    match check_collectors(&collectors) {
        Ok(()) => Some(collectors),
        // The list is short only because of items that were reported.
        Err(_) if invalid => None,
        Err(error) => {
            report.add(&span, &section.context, format!("`collectors`: {error}"));
            None
        }
    }
}
