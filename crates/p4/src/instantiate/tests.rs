use super::*;
use crate::hir::{BinOp, Control, Extern, ExternId, Package, PackageId, Table, Var, VarKind};
use crate::source::Span;

/// A program under construction: its package has one parameter.
#[derive(Default)]
struct Draft(Program);

impl Draft {
    fn new() -> Draft {
        let mut draft = Draft::default();
        draft.0.packages.push(Package {
            name: "Switch".to_owned(),
            annotations: Vec::new(),
            params: vec!["c".to_owned()],
        });
        draft.0.externs.push(Extern {
            name: "store".to_owned(),
            annotations: Vec::new(),
            methods: Vec::new(),
        });
        draft
    }

    fn instance(&self, name: &str, ty: Type, args: Vec<Expr>) -> Instance {
        Instance {
            name: name.to_owned(),
            annotations: Vec::new(),
            ty,
            args,
            constructor: 0,
            methods: Vec::new(),
            span: Span::default(),
        }
    }

    fn declare(&mut self, instance: Instance) -> InstanceId {
        self.0.instances.push(instance);
        InstanceId(self.0.instances.len() as u32 - 1)
    }

    fn control(&mut self, name: &str, constructor: Vec<VarId>, instances: Vec<InstanceId>) -> Type {
        self.0.controls.push(Control {
            name: name.to_owned(),
            annotations: Vec::new(),
            params: Vec::new(),
            constructor,
            instances,
            actions: Vec::new(),
            tables: Vec::new(),
            locals: Vec::new(),
            body: Vec::new(),
            span: Span::default(),
        });
        Type::Control(ControlId(self.0.controls.len() as u32 - 1))
    }

    fn param(&mut self, name: &str, ty: Type) -> VarId {
        let kind = VarKind::Constructor;
        self.0.vars.push(Var {
            name: name.to_owned(),
            ty,
            kind,
            annotations: Vec::new(),
            span: Span::default(),
        });
        VarId(self.0.vars.len() as u32 - 1)
    }

    /// Makes a package object of a control `main`.
    fn main(&mut self, control: Type) {
        let argument = self.new_object("control", control, Vec::new());
        let main = self.instance("main", Type::Package(PackageId(0)), vec![argument]);
        let main = self.declare(main);
        self.0.main = Some(main);
        self.0.globals.push(main);
    }

    fn new_object(&self, name: &str, ty: Type, args: Vec<Expr>) -> Expr {
        let instance = self.instance(name, ty.clone(), args);
        expr(ExprKind::New(Box::new(instance)), ty)
    }
}

fn expr(kind: ExprKind, ty: Type) -> Expr {
    Expr { kind, ty, span: Span::default() }
}

fn number(value: u32) -> Expr {
    expr(ExprKind::Const(Value::Integer(value.into())), Type::Bit(32))
}

fn store() -> Type {
    Type::Extern(ExternId(0), Vec::new().into())
}

fn name(name: &str) -> Annotation {
    let body = AnnotationBody::Tokens(vec![format!("{name:?}")]);
    Annotation { name: "name".to_owned(), body, span: Span::default() }
}

/// Names and first arguments.
fn listed(program: &Program) -> Vec<(String, Option<Arg>)> {
    let mut diagnostics = Diagnostics::default();
    let objects = Objects::of(program, &mut diagnostics);
    assert_eq!(diagnostics.list(), []);
    objects.iter().map(|(_, object)| (object.name.clone(), object.args.first().cloned())).collect()
}

fn value(value: u32) -> Option<Arg> {
    Some(Arg::Value(Value::Integer(value.into())))
}

#[test]
fn objects_in_controls_have_the_names_and_arguments_of_each_instance() {
    let mut draft = Draft::new();
    let size = draft.param("size", Type::Bit(32));
    let doubled = Box::new((expr(ExprKind::Var(size), Type::Bit(32)), number(2)));
    let doubled = expr(ExprKind::Binary(BinOp::Mul, doubled), Type::Bit(32));
    let cells = draft.instance("cells", store(), vec![doubled]);
    let cells = draft.declare(cells);
    let inner = draft.control("inner", vec![size], vec![cells]);
    let first = draft.instance("first", inner.clone(), vec![number(4)]);
    let first = draft.declare(first);
    let mut second = draft.instance("second", inner, vec![number(5)]);
    second.annotations.push(name(".elsewhere"));
    let second = draft.declare(second);
    let outer = draft.control("ingress", Vec::new(), vec![first, second]);
    draft.main(outer);
    let expected = [
        ("main", Some(Arg::Object(ObjectId(1)))),
        ("ingress", None),
        ("ingress.first", value(4)),
        ("ingress.first.cells", value(8)),
        ("elsewhere", value(5)),
        ("elsewhere.cells", value(10)),
    ];
    assert_eq!(listed(&draft.0), expected.map(|(name, arg)| (name.to_owned(), arg)));
}

#[test]
fn an_object_that_is_an_argument_is_named_after_the_parameter() {
    let mut draft = Draft::new();
    let helper = draft.control("helper", Vec::new(), Vec::new());
    let param = draft.param("chosen", helper.clone());
    let user = draft.control("user", vec![param], Vec::new());
    let argument = draft.new_object("helper", helper, Vec::new());
    let instance = draft.instance("u", user, vec![argument]);
    let instance = draft.declare(instance);
    let ingress = draft.control("ingress", Vec::new(), vec![instance]);
    draft.main(ingress);
    let names: Vec<String> = listed(&draft.0).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["main", "ingress", "ingress.u", "ingress.u.chosen"]);
    let objects = Objects::of(&draft.0, &mut Diagnostics::default());
    assert_eq!(objects.param(ObjectId(2), param), Some(&Arg::Object(ObjectId(3))));
}

#[test]
fn a_property_of_a_table_brings_an_object_into_being() {
    let mut draft = Draft::new();
    let ingress = draft.control("ingress", Vec::new(), Vec::new());
    let property = |annotations, value| Property {
        name: "implementation".to_owned(),
        annotations,
        is_const: false,
        value,
        span: Span::default(),
    };
    let named = property(vec![name("profile")], draft.new_object("store", store(), vec![number(1)]));
    let nameless = property(Vec::new(), draft.new_object("store", store(), vec![number(2)]));
    draft.0.tables.push(Table {
        name: "t".to_owned(),
        annotations: Vec::new(),
        control: ControlId(0),
        keys: Vec::new(),
        actions: Vec::new(),
        default: None,
        const_default: false,
        entries: Vec::new(),
        const_entries: false,
        size: None,
        properties: vec![named, nameless],
        span: Span::default(),
    });
    draft.0.controls[0].tables.push(TableId(0));
    draft.main(ingress);
    let names: Vec<String> = listed(&draft.0).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["main", "ingress", "profile", "ingress.t.implementation"]);
    let objects = Objects::of(&draft.0, &mut Diagnostics::default());
    let table = &draft.0.tables[0];
    for (at, id) in [(0, ObjectId(2)), (1, ObjectId(3))] {
        assert_eq!(objects.property(ObjectId(1), TableId(0), at, &table.properties[at].value), Some(id));
    }
}

#[test]
fn a_small_program_cannot_bring_a_great_many_objects_into_being() {
    let mut draft = Draft::new();
    let mut control = draft.control("c0", Vec::new(), Vec::new());
    for level in 1..40 {
        let twice = ["a", "b"].map(|name| draft.instance(name, control.clone(), Vec::new()));
        let twice = twice.map(|instance| draft.declare(instance));
        control = draft.control(&format!("c{level}"), Vec::new(), twice.to_vec());
    }
    draft.main(control);
    let mut diagnostics = Diagnostics::default();
    let objects = Objects::of(&draft.0, &mut diagnostics);
    assert!(objects.iter().count() <= MOST_OBJECTS);
    assert!(diagnostics.list()[0].message.contains("more than 10000 objects"), "{:?}", diagnostics.list());
}

#[test]
fn names_and_depth_are_bounded() {
    let long = "n".repeat(MOST_NAME / 2);
    for (levels, name, message) in [(MOST_DEPTH + 1, "n", "nested"), (3, long.as_str(), "bytes")] {
        let mut draft = Draft::new();
        let mut control = draft.control("c", Vec::new(), Vec::new());
        for _ in 0..levels {
            let instance = draft.instance(name, control, Vec::new());
            let instance = draft.declare(instance);
            control = draft.control("c", Vec::new(), vec![instance]);
        }
        draft.main(control);
        let mut diagnostics = Diagnostics::default();
        Objects::of(&draft.0, &mut diagnostics);
        assert!(diagnostics.list()[0].message.contains(message), "{:?}", diagnostics.list());
    }
}

#[test]
fn an_argument_that_is_not_known_is_an_error() {
    let mut draft = Draft::new();
    let var = draft.param("size", Type::Bit(32));
    let cells = draft.instance("cells", store(), vec![expr(ExprKind::Var(var), Type::Bit(32))]);
    let cells = draft.declare(cells);
    draft.0.globals.push(cells);
    let mut diagnostics = Diagnostics::default();
    Objects::of(&draft.0, &mut diagnostics);
    assert_eq!(diagnostics.list()[0].message, "argument 1 of `cells` is not known at compile time");
}
