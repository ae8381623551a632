// Package dialect hides what differs between the databases that the store supports.
//
// The store writes each statement once. The text is standard SQL with five kinds of extensions, which Expand translates:
//
//   - parameters: @name, or ? in order of appearance, or ?3 for the third;
//   - macros, which look like functions: ids, texts, records, which are functions of the database or stand for a list or a table. Where long
//     texts are looked up in the result of a query, key_of stands for them on both sides of IN;
//   - ORDERED JOIN: a join in the written order, for databases whose planner can be bound to it;
//   - NESTED JOIN and NESTED LEFT JOIN, with a table, its alias and ON: each row before it looks up its rows of the table, on every database and
//     whatever the planner knows of the tables. An index finds them by the conditions in ON, so a filter belongs into WHERE;
//   - INDEXED BY name: the index that the table before it is read by. A name that ends with _by_key is that of the unique index which stands
//     for the primary key where keys are too long for one.
//
// MySQL assigns from left to right: in SET, a column's new value must stand after all expressions that read the column.
//
// The package knows no table and no statement of the store. A Dialect is safe for concurrent use.
package dialect

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync"
)

// Dialect is one database's form of SQL, and what its driver needs.
type Dialect struct {
	// Name is how the configuration names the database.
	Name string
	// ReturnsID is true if an INSERT can end with RETURNING id. Otherwise the driver knows the row's ID.
	ReturnsID bool

	// Snapshot is the isolation level at which all statements of a transaction read the same state.
	Snapshot sql.IsolationLevel

	// AfterLoad returns the statements to execute after rows were copied into an empty table: IDs that the database generates must be larger
	// than the copied ones, and its planner must know the table. hasIDs is true if the column id is generated. It is nil for no statements.
	AfterLoad func(table string, hasIDs bool) []string

	// native is true if the driver takes @name, ? and ?3 as they are. Otherwise placeholder returns the text of the n-th parameter, counted
	// from 1. If repeats is true, a parameter that is used twice is passed twice.
	native      bool
	placeholder func(n int) string
	repeats     bool

	orderedJoin string
	indexedBy   func(index string) string
	macros      map[string]macro
	// rewrite changes the text as a whole before it is expanded; nil for no change.
	rewrite func(text string) (string, error)

	expanded sync.Map // statement text to *Statement
}

// macro returns the text of a macro with its arguments, which are expanded already.
type macro func(args []string) (string, error)

// Statement is a statement in one dialect.
type Statement struct {
	// Text is what the database gets.
	Text string
	// params are the parameters in the order of the placeholders; nil if the driver takes them as they are.
	params []param
}

// param is a parameter of a statement: a name, or a position counted from 1.
type param struct {
	name     string
	position int
}

// Expand translates a statement. It remembers every text, so a statement must not contain values.
func (d *Dialect) Expand(text string) (*Statement, error) {
	if known, found := d.expanded.Load(text); found {
		return known.(*Statement), nil
	}
	rewritten := text
	if d.rewrite != nil {
		var err error
		if rewritten, err = d.rewrite(text); err != nil {
			return nil, fmt.Errorf("rewrite %q: %w", text, err)
		}
	}
	e := expansion{dialect: d, numbers: make(map[param]int)}
	expanded, err := e.expand(rewritten)
	if err != nil {
		return nil, fmt.Errorf("expand %q: %w", text, err)
	}
	statement := &Statement{Text: expanded, params: e.params}
	d.expanded.Store(text, statement)
	return statement, nil
}

// Args returns the arguments in the order that the database wants them. Truth values become 0 and 1, as the columns have them.
func (s *Statement) Args(args []any) ([]any, error) {
	if s.params == nil {
		return args, nil
	}
	named := make(map[string]any)
	var positional []any
	for _, arg := range args {
		if n, isNamed := arg.(sql.NamedArg); isNamed {
			named[n.Name] = n.Value
		} else {
			positional = append(positional, arg)
		}
	}
	ordered := make([]any, len(s.params))
	for i, p := range s.params {
		value, found := named[p.name]
		switch {
		case p.name != "" && !found:
			return nil, fmt.Errorf("the statement has the parameter @%s without a value", p.name)
		case p.name == "" && p.position > len(positional):
			return nil, fmt.Errorf("the statement has %d parameters and %d values", p.position, len(positional))
		case p.name == "":
			value = positional[p.position-1]
		}
		var err error
		if ordered[i], err = columnValue(value); err != nil {
			return nil, err
		}
	}
	return ordered, nil
}

// columnValue returns a value as the driver gets it.
func columnValue(value any) (any, error) {
	column, err := driver.DefaultParameterConverter.ConvertValue(value)
	switch column {
	case true:
		return int64(1), err
	case false:
		return int64(0), err
	}
	return column, err
}

// expansion is the state of expanding one statement.
type expansion struct {
	dialect *Dialect
	params  []param
	numbers map[param]int
	last    int // largest position so far
}

// parameter returns the placeholder of a parameter.
func (e *expansion) parameter(p param) string {
	if n, found := e.numbers[p]; found && !e.dialect.repeats {
		return e.dialect.placeholder(n)
	}
	e.params = append(e.params, p)
	e.numbers[p] = len(e.params)
	return e.dialect.placeholder(len(e.params))
}

// expand translates a text: a statement, or an argument of a macro.
func (e *expansion) expand(text string) (string, error) {
	var out strings.Builder
	s := scanner{text: text}
	for s.next() {
		switch {
		case s.kind == tokenParameter && !e.dialect.native:
			p, err := e.parse(s.token)
			if err != nil {
				return "", err
			}
			out.WriteString(e.parameter(p))
		case s.kind == tokenWord && strings.EqualFold(s.token, "NESTED") && s.follows("LEFT"):
			// such a join is nested already
		case s.kind == tokenWord && (strings.EqualFold(s.token, "ORDERED") || strings.EqualFold(s.token, "NESTED")) && s.follows("JOIN"):
			s.skipTo("JOIN")
			out.WriteString(e.dialect.orderedJoin)
		case s.kind == tokenWord && strings.EqualFold(s.token, "INDEXED") && s.follows("BY"):
			s.skipTo("BY")
			index, err := s.word()
			if err != nil {
				return "", err
			}
			out.WriteString(e.dialect.indexedBy(index))
		case s.kind == tokenWord && s.followedByParenthesis() && e.dialect.macros[s.token] != nil:
			expanded, err := e.macro(s.token, &s)
			if err != nil {
				return "", err
			}
			out.WriteString(expanded)
		default:
			out.WriteString(s.token)
		}
	}
	return out.String(), s.err
}

func (e *expansion) macro(name string, s *scanner) (string, error) {
	args, err := s.arguments()
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	for i, arg := range args {
		if args[i], err = e.expand(strings.TrimSpace(arg)); err != nil {
			return "", err
		}
	}
	expanded, err := e.dialect.macros[name](args)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return expanded, nil
}

// parse returns the parameter that a token names.
func (e *expansion) parse(token string) (param, error) {
	if token[0] == '@' {
		return param{name: token[1:]}, nil
	}
	position := e.last + 1
	if len(token) > 1 {
		if _, err := fmt.Sscan(token[1:], &position); err != nil {
			return param{}, fmt.Errorf("parameter %s: %w", token, err)
		}
	}
	e.last = max(e.last, position)
	return param{position: position}, nil
}
