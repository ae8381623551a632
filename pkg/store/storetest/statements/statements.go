// Package statements finds the SQL statements in the source of the store, whether a test reaches them or not.
package statements

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Statement is a text that the store passes to its database.
type Statement struct {
	// Text is in the store's statement language, or in the database's own if Native.
	Text   string
	Native bool
	// Function passes the text on, such as "(*Store).Revision". File is the name of its file.
	Function, File string
	// Position is where the text begins.
	Position string
}

// Found is what Collect finds.
type Found struct {
	Statements []Statement
	// Unknown are the expressions whose values are not known from the source, as "Function: expression", and not in the variants.
	Unknown []string
	// Unused are the constants that begin like a statement, and are in none. UnusedVariants are the keys of variants that stand for nothing.
	Unused, UnusedVariants []string
}

// Collect finds each statement that the package in a folder passes to a database. The text of an argument is followed back through
// concatenations, variables, parameters, fields and results to constants: if a part has several values, each combination is a statement.
// variants are the values of other expressions, by "Function: expression".
func Collect(dir string, variants map[string][]string) (Found, error) {
	c := collector{
		fset: token.NewFileSet(), variants: variants, used: make(map[string]bool), params: make(map[types.Object]parameter), ranges: make(map[types.Object]ast.Expr),
		calls: make(map[types.Object][]*ast.CallExpr), assigned: make(map[types.Object][]ast.Expr), results: make(map[types.Object][]ast.Expr),
		info: &types.Info{
			Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object),
			Selections: make(map[*ast.SelectorExpr]*types.Selection),
		},
	}
	if err := c.load(dir); err != nil {
		return Found{}, err
	}
	for _, file := range c.files {
		c.index(file)
	}
	for _, call := range c.sinks {
		c.collect(call)
	}
	c.findUnused()
	slices.SortFunc(c.found.Statements, func(a, b Statement) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Position, b.Position), cmp.Compare(a.Text, b.Text))
	})
	c.found.Statements = slices.CompactFunc(c.found.Statements, func(a, b Statement) bool { return a.Text == b.Text && a.Native == b.Native && a.File == b.File })
	slices.Sort(c.found.Unknown)
	c.found.Unknown = slices.Compact(c.found.Unknown)
	return c.found, nil
}

// collector is the state of Collect. An object is a constant, variable, field or function.
type collector struct {
	fset     *token.FileSet
	info     *types.Info
	files    []*ast.File
	variants map[string][]string
	used     map[string]bool
	found    Found

	functions []*ast.FuncDecl
	sinks     []*ast.CallExpr
	params    map[types.Object]parameter
	calls     map[types.Object][]*ast.CallExpr
	assigned  map[types.Object][]ast.Expr // of variables and fields
	ranges    map[types.Object]ast.Expr   // what a variable ranges over
	results   map[types.Object][]ast.Expr // of functions with one result
}

type parameter struct {
	function types.Object
	index    int
}

// value is a known text, with the position of its first constant.
type value struct {
	text string
	at   token.Pos
}

// load parses and checks the package. What it imports is read as the compiler left it.
func (c *collector) load(dir string) error {
	list := exec.Command("go", "list", "-export", "-deps", "-f", `{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}`, ".")
	list.Dir, list.Stderr = dir, os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	exports := make(map[string]string)
	for line := range bytes.Lines(out) {
		path, file, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		exports[path] = file
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(c.fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		c.files = append(c.files, file)
	}
	config := types.Config{Importer: importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	_, err = config.Check("store", c.fset, c.files, c.info)
	return err
}

// index notes where functions are called, and what variables, fields and results are set to.
func (c *collector) index(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			c.indexFunction(n)
		case *ast.CallExpr:
			callee := c.callee(n)
			if callee == nil {
				break
			}
			c.calls[callee] = append(c.calls[callee], n)
			if isSink(callee) {
				c.sinks = append(c.sinks, n)
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if len(n.Lhs) == len(n.Rhs) {
					c.assign(left, n.Tok, n.Rhs[i])
				} else {
					c.assign(left, n.Tok, n.Rhs[0])
				}
			}
		case *ast.ValueSpec:
			for i, value := range n.Values {
				c.assign(n.Names[i], token.ASSIGN, value)
			}
		case *ast.RangeStmt:
			if name, isName := n.Value.(*ast.Ident); isName {
				c.ranges[c.object(name)] = n.X
			}
		case *ast.CompositeLit:
			c.indexFields(n)
		}
		return true
	})
}

func (c *collector) indexFunction(f *ast.FuncDecl) {
	c.functions = append(c.functions, f)
	object := c.info.Defs[f.Name]
	signature := object.Type().(*types.Signature)
	for i := range signature.Params().Len() {
		c.params[signature.Params().At(i)] = parameter{object, i}
	}
	if f.Body == nil || signature.Results().Len() != 1 {
		return
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if result, isReturn := n.(*ast.ReturnStmt); isReturn && len(result.Results) == 1 {
			c.results[object] = append(c.results[object], result.Results[0])
		}
		_, isFunction := n.(*ast.FuncLit)
		return !isFunction
	})
}

func (c *collector) indexFields(literal *ast.CompositeLit) {
	of := c.info.Types[literal].Type
	if pointer, isPointer := of.Underlying().(*types.Pointer); isPointer {
		of = pointer.Elem()
	}
	fields, isStruct := of.Underlying().(*types.Struct)
	if !isStruct {
		return
	}
	for i, element := range literal.Elts {
		if pair, isPair := element.(*ast.KeyValueExpr); isPair {
			field := c.info.Uses[pair.Key.(*ast.Ident)]
			c.assigned[field] = append(c.assigned[field], pair.Value)
		} else {
			c.assigned[fields.Field(i)] = append(c.assigned[fields.Field(i)], element)
		}
	}
}

// assign notes an assignment to a variable or field. An assigned sum has its variable as its first part.
func (c *collector) assign(left ast.Expr, operator token.Token, right ast.Expr) {
	object := c.object(left)
	if object == nil {
		return
	}
	if operator == token.ADD_ASSIGN {
		right = &ast.BinaryExpr{X: left, Op: token.ADD, Y: right}
	}
	c.assigned[object] = append(c.assigned[object], right)
}

// object returns what a name, selector or function stands for; nil if that is nothing of its own.
func (c *collector) object(e ast.Expr) types.Object {
	switch e := e.(type) {
	case *ast.Ident:
		return cmp.Or(c.info.Uses[e], c.info.Defs[e])
	case *ast.SelectorExpr:
		if selection := c.info.Selections[e]; selection != nil {
			return selection.Obj()
		}
		return c.info.Uses[e.Sel]
	case *ast.ParenExpr:
		return c.object(e.X)
	case *ast.IndexExpr:
		return c.object(e.X)
	}
	return nil
}

func (c *collector) callee(call *ast.CallExpr) types.Object {
	function, isFunction := c.object(call.Fun).(*types.Func)
	if !isFunction {
		return nil
	}
	return function.Origin()
}

// isSink is true for the functions that pass their argument to the database: those of database/sql and of types with the same methods.
func isSink(callee types.Object) bool {
	switch callee.Name() {
	case "ExecContext", "QueryContext", "QueryRowContext", "Exec", "Query", "QueryRow", "Prepare", "PrepareContext":
		return callee.Pkg().Path() == "store" || callee.Pkg().Path() == "database/sql"
	}
	return false
}

func (c *collector) collect(call *ast.CallExpr) {
	callee := c.callee(call)
	parameters := callee.Type().(*types.Signature).Params()
	for i := range parameters.Len() {
		if name := parameters.At(i).Name(); name != "statement" && name != "query" {
			continue
		}
		function, file := c.function(call.Pos()), filepath.Base(c.fset.Position(call.Pos()).Filename)
		for _, v := range c.values(call.Args[i], nil) {
			at := c.fset.Position(v.at)
			c.found.Statements = append(c.found.Statements, Statement{
				Text: v.text, Native: callee.Pkg().Path() == "database/sql", Function: function, File: file,
				Position: fmt.Sprintf("%s:%d", filepath.Base(at.Filename), at.Line),
			})
		}
	}
}

// values returns what an expression can be. Objects that are being followed are not followed again.
func (c *collector) values(e ast.Expr, following []types.Object) []value {
	if known := c.info.Types[e]; known.Value != nil && known.Value.Kind() == constant.String {
		return []value{{constant.StringVal(known.Value), c.start(e)}}
	}
	key := c.function(e.Pos()) + ": " + types.ExprString(e)
	if variants, found := c.variants[key]; found {
		c.used[key] = true
		var all []value
		for _, text := range variants {
			all = append(all, value{text, e.Pos()})
		}
		return all
	}
	switch e := e.(type) {
	case *ast.ParenExpr:
		return c.values(e.X, following)
	case *ast.BinaryExpr:
		return c.sums(e, following)
	case *ast.CallExpr:
		if c.info.Types[e.Fun].IsType() {
			return c.values(e.Args[0], following)
		}
		if callee := c.callee(e); callee != nil && c.results[callee] != nil {
			return c.all(callee, c.results[callee], following)
		}
	case *ast.Ident, *ast.SelectorExpr:
		if all, known := c.variable(c.object(e), following); known {
			return all
		}
	}
	c.found.Unknown = append(c.found.Unknown, key)
	return nil
}

func (c *collector) sums(e *ast.BinaryExpr, following []types.Object) (all []value) {
	right := c.values(e.Y, following)
	for _, left := range c.values(e.X, following) {
		for _, r := range right {
			all = append(all, value{left.text + r.text, left.at})
		}
	}
	return all
}

func (c *collector) variable(object types.Object, following []types.Object) (all []value, known bool) {
	if p, isParameter := c.params[object]; isParameter {
		if len(c.calls[p.function]) == 0 {
			return nil, isSink(p.function) // called from outside
		}
		var args []ast.Expr
		for _, call := range c.calls[p.function] {
			args = append(args, call.Args[p.index])
		}
		return append(c.all(object, args, following), c.all(object, c.assigned[object], following)...), true
	}
	if over, isRange := c.ranges[object]; isRange {
		if set := c.assigned[c.object(over)]; len(set) == 1 {
			over = set[0]
		}
		list, isList := over.(*ast.CompositeLit)
		if !isList {
			return nil, false
		}
		return c.all(object, list.Elts, following), true
	}
	return c.all(object, c.assigned[object], following), len(c.assigned[object]) > 0
}

func (c *collector) all(object types.Object, each []ast.Expr, following []types.Object) (all []value) {
	if slices.Contains(following, object) {
		return nil
	}
	following = append(slices.Clone(following), object)
	for _, e := range each {
		all = append(all, c.values(e, following)...)
	}
	return all
}

// start returns the position of the first constant of an expression's text: that of a named constant is its declaration.
func (c *collector) start(e ast.Expr) token.Pos {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return c.start(e.X)
	case *ast.Ident, *ast.SelectorExpr:
		if object := c.object(e); object != nil && object.Pos().IsValid() {
			return object.Pos()
		}
	}
	return e.Pos()
}

// function returns the name of the function that a position is in.
func (c *collector) function(at token.Pos) string {
	for _, f := range c.functions {
		if f.Pos() <= at && at < f.End() {
			return strings.ReplaceAll(c.info.Defs[f.Name].(*types.Func).FullName(), "store.", "")
		}
	}
	return ""
}

// beginsStatement matches the begin of texts that should be in a statement.
var beginsStatement = regexp.MustCompile(`^\s*(SELECT|WITH|INSERT|UPDATE|DELETE|REPLACE)\s`)

func (c *collector) findUnused() {
	for e, known := range c.info.Types {
		if known.Value == nil || known.Value.Kind() != constant.String || !beginsStatement.MatchString(constant.StringVal(known.Value)) {
			continue
		}
		text := constant.StringVal(known.Value)
		if !slices.ContainsFunc(c.found.Statements, func(s Statement) bool { return strings.Contains(s.Text, text) }) {
			c.found.Unused = append(c.found.Unused, fmt.Sprintf("%s: %s", c.fset.Position(e.Pos()), text))
		}
	}
	slices.Sort(c.found.Unused)
	c.found.Unused = slices.Compact(c.found.Unused)
	for key := range c.variants {
		if !c.used[key] {
			c.found.UnusedVariants = append(c.found.UnusedVariants, key)
		}
	}
}
