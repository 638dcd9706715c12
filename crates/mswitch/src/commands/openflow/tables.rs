//! Names of a bridge's flow tables: accepted wherever a text has a table's number, and shown in its place.

use std::collections::BTreeMap;

use control::proto;
use openflow::text;

use crate::failure::Failure;

/// Names by number.
#[derive(Debug, Default)]
pub(super) struct TableNames(BTreeMap<u32, String>);

impl TableNames {
    /// Collects the names of a bridge's tables.
    pub(super) fn new(tables: Vec<proto::OpenFlowTable>) -> Self {
        Self(tables.into_iter().map(|table| (table.number, table.name)).collect())
    }

    /// Returns the name of a table.
    pub(super) fn name(&self, table: u8) -> Option<&String> {
        self.0.get(&table.into())
    }

    /// Writes tables with their names. A name that the syntax cannot express is left out.
    pub(super) fn show(&self, text: &str) -> String {
        text::replace_tables(text, |number| {
            self.name(number.parse().ok()?).filter(|name| text::is_table_name(name)).cloned()
        })
    }

    /// Writes tables with their numbers, for the parser.
    ///
    /// # Errors
    /// No table has one of the names.
    pub(super) fn resolve(&self, text: &str) -> Result<String, Failure> {
        let mut unknown = None;
        let resolved = text::replace_tables(text, |reference| {
            if !text::is_table_name(reference) {
                return None;
            }
            let found = self.0.iter().find(|(_, name)| *name == reference);
            if found.is_none() {
                unknown.get_or_insert(reference.to_owned());
            }
            found.map(|(number, _)| number.to_string())
        });
        match unknown {
            None => Ok(resolved),
            Some(name) => {
                Err(Failure::usage(format_args!("no table has the name `{name}`; {}", self.known())))
            }
        }
    }

    fn known(&self) -> String {
        match self.0.is_empty() {
            true => "`tables` of `[bridge.openflow]` gives names to tables".into(),
            false => {
                let names: Vec<_> =
                    self.0.iter().map(|(number, name)| format!("`{name}` ({number})")).collect();
                format!("the named tables are {}", names.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_numbers() {
        let table = |number, name: &str| proto::OpenFlowTable { number, name: name.into() };
        let names = TableNames::new(vec![table(0, "in"), table(10, "acl"), table(11, "not a word")]);
        let message = |failure: Failure| failure.to_string().trim_start_matches("mswitch: ").to_owned();
        let resolved = |text: &str| names.resolve(text).map_err(message);
        let shown = "table=acl,ip,actions=resubmit(,in),goto_table:11";
        let plain = "table=10,ip,actions=resubmit(,0),goto_table:11";
        assert_eq!(resolved(shown), Ok(plain.to_owned()));
        assert_eq!(resolved(plain), Ok(plain.to_owned()));
        assert_eq!(names.show(plain), shown);
        assert_eq!(
            resolved("table=alc").unwrap_err(),
            "no table has the name `alc`; the named tables are `in` (0), `acl` (10), `not a word` (11)"
        );
        let nothing = TableNames::default().resolve("table=acl").unwrap_err().to_string();
        assert!(nothing.ends_with("; `tables` of `[bridge.openflow]` gives names to tables"), "{nothing}");
    }
}
