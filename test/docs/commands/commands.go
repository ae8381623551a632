// Package commands reads the commands that pages tell users to copy, so that tests run exactly these. It runs nothing itself.
package commands

import (
	"fmt"
	"regexp"
	"strings"
)

// Block is a code block with shell commands.
type Block struct {
	// Page is the path of the page, and Line the number of the block's first command, from 1.
	Page string
	Line int
	// Section is the text of the heading above the block.
	Section string
	// Commands is the block's text, without the indentation of a list that it is in.
	Commands string
	// NotRun is why tests do not run the block; empty if they do.
	NotRun string
}

// Place names the block for messages: page and line.
func (b Block) Place() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

var (
	heading = regexp.MustCompile(`^#+ (.*)$`)
	opening = regexp.MustCompile("^( *)```(.*)$")
	notRun  = regexp.MustCompile(`^ *<!-- not run:(.*)-->$`)
)

// prompt is before each command of a block in console.
const prompt = "$ "

// Read returns the blocks of a page with commands, in their order: blocks in sh and bash, and of blocks in console, which show output as well,
// the lines after a prompt "$ ". The line before a block that tests cannot run says why:
//
//	<!-- not run: reason -->
//
// Such a comment without a reason, or without a block after it, is an error, as is a block without an end and a console without a command.
func Read(page, text string) ([]Block, error) {
	r := reader{page: page}
	for i, line := range strings.Split(text, "\n") {
		if err := r.add(i+1, line); err != nil {
			return nil, err
		}
	}
	if r.inside {
		return nil, fmt.Errorf("%s:%d: the code block has no end", page, r.block.Line-1)
	}
	return r.blocks, r.requireBlock()
}

// reader reads a page line by line.
type reader struct {
	page, section string
	blocks        []Block
	// inside a block, block is what was read of it; shell if its language is a shell's, console if its commands follow a prompt.
	inside, shell, console bool
	indent                 string
	block                  Block
	// reason is that of a comment on the line before, which is commentLine.
	reason      string
	commentLine int
}

func (r *reader) add(number int, line string) error {
	if r.inside {
		return r.addInside(line)
	}
	if match := opening.FindStringSubmatch(line); match != nil {
		r.inside, r.indent = true, match[1]
		r.console = match[2] == "console"
		r.shell = match[2] == "sh" || match[2] == "bash" || r.console
		r.block = Block{Page: r.page, Line: number + 1, Section: r.section, NotRun: r.reason}
		if !r.shell {
			return r.requireBlock()
		}
		r.reason = ""
		return nil
	}
	if err := r.requireBlock(); err != nil {
		return err
	}
	if match := notRun.FindStringSubmatch(line); match != nil {
		if r.reason, r.commentLine = strings.TrimSpace(match[1]), number; r.reason == "" {
			return fmt.Errorf("%s:%d: the comment does not say why the commands are not run", r.page, number)
		}
	}
	if match := heading.FindStringSubmatch(line); match != nil {
		r.section = match[1]
	}
	return nil
}

func (r *reader) addInside(line string) error {
	line = strings.TrimPrefix(line, r.indent)
	if line != "```" {
		command, typed := line, true
		if r.console {
			command, typed = strings.CutPrefix(line, prompt)
		}
		if typed {
			r.block.Commands += command + "\n"
		}
		return nil
	}
	r.inside = false
	if r.console && r.block.Commands == "" {
		return fmt.Errorf("%s:%d: this console has no line that begins with %q", r.page, r.block.Line, prompt)
	}
	if r.shell {
		r.blocks = append(r.blocks, r.block)
	}
	return nil
}

// requireBlock returns an error if the line before was a comment that belongs to no block.
func (r *reader) requireBlock() error {
	if r.reason == "" {
		return nil
	}
	return fmt.Errorf("%s:%d: the line after this comment does not begin a block of sh, bash or console", r.page, r.commentLine)
}

// Replace replaces the text of users' surroundings by that of a test's, given as pairs. Pairs apply in their order, each to all of the text.
func Replace(commands string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		commands = strings.ReplaceAll(commands, pairs[i], pairs[i+1])
	}
	return commands
}

// Whole returns the pages whose commands TestDocuments in test/install runs, all of them and in this order, on one cluster.
func Whole() []string {
	return []string{
		"docs/try/quickstart.md",
		"docs/try/slack.md",
		"docs/operate/whole-cluster.md",
		"docs/use/one-namespace.md",
		"docs/use/notifications.md",
		"docs/use/notifications-messages.md",
		"docs/use/notifications-delivery.md",
		"docs/use/slack-app.md",
		"docs/use/scanner.md",
		"docs/use/imagescan.md",
		"docs/use/exceptions.md",
		"docs/use/private-registries.md",
		"docs/use/troubleshooting.md",
		"docs/use/troubleshooting-images.md",
		"docs/use/troubleshooting-engines.md",
		"docs/use/troubleshooting-messages.md",
		"docs/use/troubleshooting-exports.md",
		"docs/use/troubleshooting-clusterscanner.md",
	}
}
