// Command api simulates a web service with a framework. It answers every request with the time of its start.
package main

import (
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/net/html"
)

func main() {
	started := time.Now()
	token, err := bcrypt.GenerateFromPassword([]byte(started.String()), bcrypt.MinCost)
	if err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.NoRoute(func(c *gin.Context) {
		c.String(http.StatusOK, "%s %s\n", html.EscapeString(started.String()), token)
	})
	if err := router.Run(":8080"); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}
