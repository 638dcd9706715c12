//! From headers to bytes.

use super::pass::Pass;
use super::{Dropped, Flow, Form, Limit, Machine};
use crate::hash::BitString;
use crate::ir::{Constant, EmitRef, HeaderId};

impl Machine<'_> {
    /// The packet's bytes as they would leave now. The pass is left as it is.
    pub(super) fn deparse(&mut self, pass: &mut Pass) -> Result<Form, Dropped> {
        let deparser = self.program.stages.get(pass.stage.index()).and_then(|stage| stage.deparser);
        let before = pass.data.clone();
        pass.emitted = Some(vec![]);
        let flow = match deparser.and_then(|block| self.program.blocks.get(block.index())) {
            Some((_, body)) => self.body(body, pass, &[]),
            None => {
                for i in 0..self.program.headers.len() {
                    self.emit_header(HeaderId::at(i), pass);
                }
                Flow::Next
            }
        };
        let emitted = pass.emitted.take().unwrap_or_default();
        pass.data = before;
        if let Flow::Drop(reason) = flow {
            return Err(reason);
        }
        let mut form = pass.data.payload.clone();
        form.prepend(&emitted);
        pass.data.truncate.iter().for_each(|len| form.cut(*len));
        if form.head.len() > self.limits.headers {
            return Err(Dropped::Limit(Limit::Headers));
        }
        Ok(form)
    }

    pub(super) fn emit(&mut self, emit: &EmitRef, pass: &mut Pass, params: &[Constant]) {
        let (first, size) = match emit {
            EmitRef::Header(header) => match self.resolve(header, pass, params) {
                Some(id) => (id.0, 1),
                None => return,
            },
            EmitRef::Stack(stack) => match self.program.stacks.get(stack.index()) {
                Some(stack) => (stack.first.0, stack.size),
                None => return,
            },
            EmitRef::Union(union) => match self.program.unions.get(union.index()) {
                Some(union) => (union.first.0, union.size),
                None => return,
            },
        };
        for i in 0..size {
            self.emit_header(HeaderId(first.saturating_add(i)), pass);
        }
    }

    /// Appends a header, if it is valid.
    fn emit_header(&mut self, id: HeaderId, pass: &mut Pass) {
        let Some(header) = pass.data.headers.get(id.index()).filter(|header| header.valid) else { return };
        let mut bytes = BitString::default();
        header.fields.iter().for_each(|field| bytes.push(field));
        if let Some(emitted) = &mut pass.emitted {
            // What exceeds the limit is refused in the end; here it only must not grow without bounds.
            if emitted.len() <= self.limits.headers {
                emitted.extend_from_slice(bytes.bytes());
            }
        }
    }
}
