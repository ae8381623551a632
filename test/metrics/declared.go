// Package metrics tests that the project's metrics, their page, alerts, runbooks and dashboards are consistent.
package metrics

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Metric is the declaration of a metric in the code.
type Metric struct {
	Name, Type, Help string
	Labels           []string
}

// ownMetric matches the names of the project's metrics.
var ownMetric = regexp.MustCompile(`^scanner_(operator|notifier)_[a-z_]+$`)

// Declared returns the metrics in the code of directories, by name. It recognises calls of client_golang's constructors with Name and
// Help as literals, and calls of functions whose first two arguments are name and help as literals.
func Declared(root string, directories ...string) (map[string]Metric, error) {
	declared := map[string]Metric{}
	for _, directory := range directories {
		err := filepath.WalkDir(filepath.Join(root, directory), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(node ast.Node) bool {
				if call, isCall := node.(*ast.CallExpr); isCall {
					if metric := metricOf(call); ownMetric.MatchString(metric.Name) {
						declared[metric.Name] = metric
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return declared, nil
}

func metricOf(call *ast.CallExpr) (m Metric) {
	if len(call.Args) == 0 {
		return m
	}
	if name := text(call.Args[0]); name != "" && len(call.Args) > 1 {
		m = Metric{Name: name, Type: "gauge", Help: text(call.Args[1])}
		for _, label := range call.Args[2:] {
			m.Labels = append(m.Labels, text(label))
		}
		return m
	}
	options, isLiteral := call.Args[0].(*ast.CompositeLit)
	if !isLiteral {
		return m
	}
	for _, element := range options.Elts {
		field, isField := element.(*ast.KeyValueExpr)
		if !isField {
			return m
		}
		switch key := field.Key.(type) {
		case *ast.Ident:
			switch key.Name {
			case "Name":
				m.Name = text(field.Value)
			case "Help":
				m.Help = text(field.Value)
			case "ConstLabels":
				m.Labels = append(m.Labels, constLabels(field.Value)...)
			}
		}
	}
	m.Type = typeOf(call.Fun)
	if len(call.Args) > 1 {
		if labels, isList := call.Args[1].(*ast.CompositeLit); isList {
			for _, label := range labels.Elts {
				m.Labels = append(m.Labels, text(label))
			}
		}
	}
	return m
}

// constLabels returns the names of constant labels. A variable counts as the label "engine", since no other labels are in variables.
func constLabels(value ast.Expr) (names []string) {
	literal, isLiteral := value.(*ast.CompositeLit)
	if !isLiteral {
		return []string{"engine"}
	}
	for _, element := range literal.Elts {
		names = append(names, text(element.(*ast.KeyValueExpr).Key))
	}
	return names
}

// typeOf returns the type of metric that a constructor creates; empty if it is not a constructor.
func typeOf(constructor ast.Expr) string {
	selector, isSelector := constructor.(*ast.SelectorExpr)
	if !isSelector {
		return ""
	}
	for _, kind := range []string{"Counter", "Gauge", "Histogram"} {
		if strings.Contains(selector.Sel.Name, kind) {
			return strings.ToLower(kind)
		}
	}
	return ""
}

// text returns the value of a string literal; empty for any other expression.
func text(e ast.Expr) string {
	literal, isLiteral := e.(*ast.BasicLit)
	if !isLiteral || literal.Kind != token.STRING {
		return ""
	}
	value, err := strconv.Unquote(literal.Value)
	if err != nil {
		return ""
	}
	return value
}
