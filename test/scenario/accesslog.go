package scenario

import (
	"bytes"
	"io"
	"os"
	"strings"
)

// AccessLog is the access log of the local cluster's registry, with one line per request in Apache's combined format.
type AccessLog struct{ file string }

// openAccessLog returns nil without a file: other clusters' registries have no readable access log.
func openAccessLog(file string) *AccessLog {
	if file == "" {
		return nil
	}
	return &AccessLog{file: file}
}

// Mark returns the current end of the log, for ReadsSince.
func (l *AccessLog) Mark() (int64, error) {
	if l == nil {
		return 0, nil
	}
	info, err := os.Stat(l.file)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// ReadsSince returns the requests since a mark that read from one of the repositories, each "GET /v2/…".
func (l *AccessLog) ReadsSince(mark int64, repositories ...string) ([]string, error) {
	if l == nil {
		return nil, nil
	}
	file, err := os.Open(l.file)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(mark, io.SeekStart); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	var reads []string
	for line := range bytes.Lines(content) {
		if request := requestIn(string(line)); readsOneOf(request, repositories) {
			reads = append(reads, request)
		}
	}
	return reads, nil
}

// requestIn returns the request in a line: the text in the first pair of quotation marks.
func requestIn(line string) string {
	_, rest, _ := strings.Cut(line, `"`)
	request, _, _ := strings.Cut(rest, `"`)
	return request
}

func readsOneOf(request string, repositories []string) bool {
	method, path, _ := strings.Cut(request, " ")
	if method != "GET" && method != "HEAD" {
		return false
	}
	for _, repository := range repositories {
		if strings.HasPrefix(path, "/v2/"+repository+"/") {
			return true
		}
	}
	return false
}
