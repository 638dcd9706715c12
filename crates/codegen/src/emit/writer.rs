//! Writers: deparsers that write the packet's valid headers, one behind the other, where they are told.
//!
//! A writer is made of statements that only emit headers at known places, of which a variable field begins at a whole
//! byte. Its argument is the address that it writes to, where there must be room for all of these headers; it returns the
//! number of bytes written, and leaves headers and variables as they are.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use cranelift_frontend::Variable;
use pipeline::ir::{EmitRef, Expr, HeaderId, HeaderRef, Program, Stmt};

use super::Emit;
use crate::layout::{FIXED, Layout};
use crate::runtime::calls;

/// Most bytes that a deparser with these statements, or without any of its own, writes; `None` if it is not one that a
/// writer can be made of.
pub(crate) fn most_written(program: &Program, layout: &Layout, body: Option<&[Stmt]>) -> Option<usize> {
    match body {
        Some(body) => body.iter().map(|stmt| most_of(program, layout, stmt)).sum(),
        None => headers_bytes(layout, (0..layout.headers()).map(HeaderId::at)),
    }
}

fn most_of(program: &Program, layout: &Layout, stmt: &Stmt) -> Option<usize> {
    match stmt {
        Stmt::Emit(emit) => headers_bytes(layout, emitted(program, emit)?),
        Stmt::If(_, yes, no) => {
            [yes, no].into_iter().map(|body| most_written(program, layout, Some(body))).sum()
        }
        _ => None,
    }
}

fn headers_bytes(layout: &Layout, mut headers: impl Iterator<Item = HeaderId>) -> Option<usize> {
    headers.try_fold(0, |sum, id| {
        let ty = layout.header_type(id)?;
        let variable = match ty.varbit {
            None => 0,
            Some(varbit) if varbit.at.is_multiple_of(8) => usize::from(varbit.max / 8),
            Some(_) => return None,
        };
        Some(sum + ty.fixed + variable)
    })
}

/// The headers that a statement emits, if they are known.
fn emitted(program: &Program, emit: &EmitRef) -> Option<impl Iterator<Item = HeaderId> + use<>> {
    let (first, count) = match emit {
        EmitRef::Header(HeaderRef::Header(id)) => (*id, 1),
        EmitRef::Header(HeaderRef::Element(stack, index)) => {
            let stack = program.stacks.get(stack.index())?;
            let Expr::Const(index) = &**index else { return None };
            let index = index.value.saturating_u64();
            if index < stack.size.into() {
                (HeaderId(stack.first.0 + index as u32), 1)
            } else {
                (stack.first, 0)
            }
        }
        EmitRef::Header(HeaderRef::Next(_) | HeaderRef::Last(_)) => return None,
        EmitRef::Stack(id) => program.stacks.get(id.index()).map(|stack| (stack.first, stack.size))?,
        EmitRef::Union(id) => program.unions.get(id.index()).map(|union| (union.first, union.size))?,
    };
    Some((first.0..first.0 + count).map(HeaderId))
}

impl Emit<'_, '_> {
    /// The writer of a deparser with these statements, or without any of its own: then it emits all headers.
    pub(crate) fn writer(&mut self, body: Option<&[Stmt]>) {
        let to = self.b.declare_var(types::I64);
        self.b.def_var(to, self.args);
        self.writes_to = Some(to);
        match body {
            Some(body) => _ = self.body(body),
            None => (0..self.cx.layout.headers()).for_each(|i| self.write_header(HeaderId::at(i), to)),
        }
        let end = self.b.use_var(to);
        let len = self.b.ins().isub(end, self.args);
        self.exit_with(len);
    }

    /// Writes the valid ones of the headers that a statement emits.
    pub(super) fn write_emitted(&mut self, emit: &EmitRef, to: Variable) {
        for id in emitted(self.cx.program, emit).into_iter().flatten() {
            self.write_header(id, to);
        }
    }

    fn write_header(&mut self, id: HeaderId, to: Variable) {
        let Some(ty) = self.cx.layout.header_type(id) else { return };
        let blob = self.blob(id);
        let valid = self.load(blob.base, blob.offset);
        let is_valid = self.is(IntCC::NotEqual, valid, 0);
        self.when(is_valid, |e| {
            let front = ty.varbit.map_or(ty.fixed, |varbit| (varbit.at / 8) as usize);
            e.write_piece(to, (blob.base, blob.offset + FIXED), front);
            if let Some(varbit) = ty.varbit {
                // Parsers extract whole bytes, at most as many as the field has.
                let bits = e.load(blob.base, blob.offset + varbit.len);
                let bytes = e.shr(bits, 3);
                let some = e.is(IntCC::NotEqual, bytes, 0);
                e.when(some, |e| {
                    let at = e.b.use_var(to);
                    let from = e.add_const(blob.base, i64::from(blob.offset + varbit.len + 8));
                    e.call(calls::copy as *const (), &[at, from, bytes]);
                    let behind = e.b.ins().iadd(at, bytes);
                    e.b.def_var(to, behind);
                });
                e.write_piece(to, (blob.base, blob.offset + FIXED + front as i32), ty.fixed - front);
            }
        });
    }

    /// Writes a constant number of bytes of the frame.
    fn write_piece(&mut self, to: Variable, (base, offset): (Value, i32), len: usize) {
        if len == 0 {
            return;
        }
        let at = self.b.use_var(to);
        self.copy_bytes(at, 0, base, offset, len);
        let behind = self.add_const(at, len as i64);
        self.b.def_var(to, behind);
    }
}
