// Command serve is the program of most images of the demo: a small web server without modules, so an image that contains only this
// program has no vulnerabilities.
//
//	serve            answer every request with the name of the host
//	serve DIRECTORY  serve the files of a directory
package main

import (
	"fmt"
	"net/http"
	"os"
	"time"
)

func main() {
	server := &http.Server{Addr: ":8080", Handler: http.HandlerFunc(greet), ReadHeaderTimeout: 10 * time.Second}
	if len(os.Args) > 1 {
		server.Handler = serveFiles(os.DirFS(os.Args[1]))
	}
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

func greet(w http.ResponseWriter, _ *http.Request) {
	host, err := os.Hostname()
	if err != nil {
		host = "somewhere"
	}
	fmt.Fprintln(w, "hello from", host)
}
