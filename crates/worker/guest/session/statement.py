"""Records the value of a last statement that is not an expression, as in smolagents' own interpreter: the
assigned or defined object, and for `if` and `for` the last such value that is not `None`."""

import _ast

# Not identifiers, so that they cannot collide with a guest's names.
VALUE, LINE = "<value>", "<line>"


def record_last(tree):
    """Changes a module so that its last statement stores its value in the variable `VALUE`."""
    if tree.body:
        last = tree.body.pop()
        tree.body += with_value(last, VALUE)


def take_value(namespace):
    namespace.pop(LINE, None)
    return namespace.pop(VALUE, None)


def with_value(statement, name):
    """Returns the statement, followed by statements that store its value, if it has one, in a variable."""
    make = RECORDERS.get(type(statement))
    return [statement] if make is None else make(statement, name)


def expression(statement, name):
    return [at(statement, _ast.Assign([stored(statement, name)], statement.value, None))]


def assignment(statement, name):
    statement.targets.insert(0, stored(statement, name))
    return [statement]


def annotated(statement, name):
    if statement.value is None:
        return [statement]
    first = at(statement, _ast.Assign([stored(statement, name)], statement.value, None))
    statement.value = loaded(statement, name)
    return [first, statement]


def augmented(statement, name):
    target = reading(statement.target)
    if target is None:
        return [statement]
    return [statement, at(statement, _ast.Assign([stored(statement, name)], target, None))]


def definition(statement, name):
    value = loaded(statement, statement.name)
    return [statement, at(statement, _ast.Assign([stored(statement, name)], value, None))]


def branches(statement, name):
    statement.body = block(statement.body, name)
    statement.orelse = block(statement.orelse, name)
    return [statement]


def loop(statement, name):
    statement.body = block(statement.body, name)
    return [statement]


def block(statements, name):
    """Returns a block in which each statement's value replaces the previous one if it is not `None`."""
    made = []
    for statement in statements:
        if type(statement) in (_ast.If, _ast.For, _ast.AsyncFor):
            made += with_value(statement, name)
        elif type(statement) in RECORDERS:
            made += [at(statement, _ast.Assign([stored(statement, LINE)], none(statement), None))]
            made += with_value(statement, LINE)
            made += [keep_line(statement, name)]
        else:
            made += [statement]
    return made


def keep_line(where, name):
    value = loaded(where, LINE)
    is_something = at(where, _ast.Compare(value, [_ast.IsNot()], [none(where)]))
    keep = at(where, _ast.Assign([stored(where, name)], loaded(where, LINE), None))
    return at(where, _ast.If(is_something, [keep], []))


def reading(target):
    """Returns an expression that reads an assignment's target, if reading it has no side effect."""
    kind = type(target)
    if kind is _ast.Name:
        return loaded(target, target.id)
    if kind is _ast.Constant:
        return target
    if kind is _ast.Attribute:
        value = reading(target.value)
        return value and at(target, _ast.Attribute(value, target.attr, _ast.Load()))
    if kind is _ast.Subscript:
        value, place = reading(target.value), reading(target.slice)
        return value and place and at(target, _ast.Subscript(value, place, _ast.Load()))
    return None


def stored(where, name):
    return at(where, _ast.Name(name, _ast.Store()))


def loaded(where, name):
    return at(where, _ast.Name(name, _ast.Load()))


def none(where):
    return at(where, _ast.Constant(None, None))


def at(where, node):
    """Gives a node the position of `where`, which tracebacks show."""
    for place in ("lineno", "col_offset", "end_lineno", "end_col_offset"):
        setattr(node, place, getattr(where, place))
    return node


RECORDERS = {
    _ast.Expr: expression,
    _ast.Assign: assignment,
    _ast.AnnAssign: annotated,
    _ast.AugAssign: augmented,
    _ast.FunctionDef: definition,
    _ast.AsyncFunctionDef: definition,
    _ast.ClassDef: definition,
    _ast.If: branches,
    _ast.For: loop,
    _ast.AsyncFor: loop,
}
